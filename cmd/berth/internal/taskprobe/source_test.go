package taskprobe

import "testing"

// The line of a Dockerfile that copies a file into the image.
func TestTheLineThatCopiesAFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dockerfile, name string
		line             int
	}{
		{"FROM a\nCOPY . /app\nRUN rm /app/x", "x", 2},
		{"FROM a\nCOPY x /app/\n", "x", 2},
		{"FROM a\nCOPY --chown=1 ./d /app/\n", "d/e/x", 2},
		{"FROM a\nADD [\"x\", \"/app\"]\n", "x", 2},
		{"FROM a\nCOPY y \\\n  d/*.txt /app/\n", "d/x.txt", 2},
		{"FROM a\ncopy /x /app/\n", "x", 2},
		{"FROM a\nCOPY y /x\n", "x", 0},
		{"FROM a AS b\nCOPY . /\nFROM c\nCOPY --from=b /x /x\n", "x", 0},
		{"FROM a\nCOPY\n", "x", 0},
		{"", "x", 0},
	} {
		if line := copies([]byte(tt.dockerfile), tt.name); line != tt.line {
			t.Errorf("%q in %q: line %d, want %d", tt.name, tt.dockerfile, line, tt.line)
		}
	}
}
