#!/bin/sh
# A kubectl that appends its arguments to $FAKE/calls, and answers with the files in $FAKE.
{ printf '%s\0' "$@"; printf '\1\0'; } >>"$FAKE/calls"
case " $* " in
*" get pod "*) answer=pod ;;
*" get pods "*) answer=pods ;;
*" auth can-i create pods --subresource=exec "*) answer=can-i ;;
*" exec "*) answer="exec" ;;
*) exit 99 ;;
esac
cat "$FAKE/$answer"
if [ -e "$FAKE/$answer.status" ]; then
    echo "Error from server (Forbidden)" >&2
    exit "$(cat "$FAKE/$answer.status")"
fi
