package copying_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/berth-eval/berth/core/trial/copying"
)

func TestCopyIsWhole(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 1 << 20} {
		text := strings.Repeat("abcdefg", size/7+1)[:size]
		for name, from := range map[string]io.Reader{
			"plain": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
			"end with data": iotest.DataErrReader(strings.NewReader(text)),
		} {
			var to bytes.Buffer
			n, err := copying.Copy(&to, from)
			if err != nil || n != int64(size) || to.String() != text {
				t.Errorf("%s: %d bytes of %d, %v", name, n, size, err)
			}
		}
	}
}

func TestCopySaysWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, size := range []int{0, 10, 100 << 10} {
		from := io.MultiReader(strings.NewReader(strings.Repeat("x", size)), iotest.ErrReader(broken))
		var to bytes.Buffer
		if n, err := copying.Copy(&to, from); !errors.Is(err, broken) || n != int64(size) {
			t.Errorf("a reader that breaks after %d bytes: %d, %v", size, n, err)
		}
	}
	r, w := io.Pipe()
	_ = r.CloseWithError(broken)
	if _, err := copying.Copy(w, strings.NewReader("x")); !errors.Is(err, broken) {
		t.Errorf("a writer that breaks: %v", err)
	}
}
