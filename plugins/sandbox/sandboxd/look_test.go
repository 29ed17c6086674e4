package sandboxd_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd"
)

// A program that cannot be looked up is not simply missing: the error says what the
// kernel said. An interrupted look is repeated.
func TestAProgramThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	program := func(st *syscall.Stat_t) error { st.Mode = syscall.S_IFREG | 0o755; return nil }
	for _, tt := range []struct {
		name    string
		answers map[string][]error // of stat, one after the other; the last stays; none: not there
		found   string
		is      error
		says    string
	}{
		{"there", map[string][]error{"/b/sh": {nil}}, "/b/sh", nil, ""},
		{"interrupted", map[string][]error{"/b/sh": {syscall.EINTR, syscall.EINTR, nil}}, "/b/sh", nil, ""},
		{"in another folder", map[string][]error{"/a/sh": {syscall.EIO}, "/b/sh": {nil}}, "/b/sh", nil, ""},
		{"missing", nil, "", fault.ErrNoProgram, `start "sh": no such program in PATH "/a:/b"`},
		{"a loop of links", map[string][]error{"/b/sh": {syscall.ELOOP}}, "", fault.ErrNoProgram, `start "sh": no such program in PATH "/a:/b"`},
		{"a broken disk", map[string][]error{"/b/sh": {syscall.EIO}}, "", fault.ErrNoProgram, `no such program in PATH "/a:/b": look for /b/sh: input/output error`},
	} {
		stat := func(path string, st *syscall.Stat_t) error {
			left, ok := tt.answers[path]
			if !ok {
				return syscall.ENOENT
			}
			if len(left) > 1 {
				tt.answers[path] = left[1:]
			}
			if left[0] != nil {
				return left[0]
			}
			return program(st)
		}
		found, err := sandboxd.LookWith(stat, "sh", "/", []string{"PATH=/a:/b"})
		if found != tt.found || !errors.Is(err, tt.is) || err != nil && !strings.HasSuffix(err.Error(), tt.says) {
			t.Errorf("%s: got %q, %v", tt.name, found, err)
		}
	}
}
