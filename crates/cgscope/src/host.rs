//! What there is to say of the running host before anything is measured.

use cgscope_view::app::About;

/// Its name and its kernel.
pub fn about() -> About {
    let uname = rustix::system::uname();
    About {
        hostname: cgscope_model::printable(&uname.nodename().to_string_lossy()).to_string(),
        kernel: cgscope_model::printable(&uname.release().to_string_lossy()).to_string(),
        ..About::default()
    }
}
