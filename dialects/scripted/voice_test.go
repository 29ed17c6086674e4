package scripted

import (
	"fmt"
	"testing"
)

func TestPieces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"", 3, "[]"}, {"abc", 0, "[abc]"}, {"Grüße", 2, "[Gr üß e]"}, {"ab", 2, "[ab]"}, {"世界", 1, "[世 界]"}} {
		if got := fmt.Sprint(Pieces(tt.in, tt.n)); got != tt.want {
			t.Errorf("Pieces(%q, %d) = %s, want %s", tt.in, tt.n, got, tt.want)
		}
	}
}
