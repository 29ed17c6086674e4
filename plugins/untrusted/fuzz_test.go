package untrusted_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// Lines that are short enough are read as they are, and longer ones are left out.
func FuzzLine(f *testing.F) {
	f.Add([]byte("a\n\nlong line\nb"), 3)
	f.Fuzz(func(t *testing.T, b []byte, longest int) {
		longest = max(1, min(longest, 1<<16))
		r := bufio.NewReaderSize(bytes.NewReader(b), 16)
		want := bytes.Split(b, []byte("\n"))
		for i := 0; ; i++ {
			line, err := untrusted.Line(r, longest)
			long := len(want[i]) > longest || len(want[i]) == longest && i < len(want)-1
			if errors.Is(err, untrusted.ErrLong) != long {
				t.Fatalf("line %d of %q: %v", i, b, err)
			}
			if !long && !bytes.Equal(line, want[i]) {
				t.Fatalf("line %d is %q, want %q", i, line, want[i])
			}
			if errors.Is(err, io.EOF) {
				if i != len(want)-1 {
					t.Fatalf("the end came after line %d of %d", i, len(want))
				}
				return
			}
			if err != nil && !long {
				t.Fatal(err)
			}
		}
	})
}
