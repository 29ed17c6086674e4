package wire

import (
	"strings"
	"testing"
)

func TestInlineFilesAreToldFromText(t *testing.T) {
	t.Parallel()
	picture := strings.Repeat("iVBORw0KGgo", 200)
	size, n := Inline([]byte(`[{"source":{"type":"base64","data":"` + picture + `"}},{"url": "data:image/png;base64,` + picture + `"},{"text":"` + picture + `"}]`))
	if n != 2 || size < int64(2*len(picture)) || size > int64(2*len(picture)+40) {
		t.Errorf("%d bytes in %d files, want 2 of %d", size, n, len(picture))
	}
	if _, n = Inline([]byte(`{"data":"` + strings.Repeat("words and words ", 200) + `"}`)); n != 0 {
		t.Error("words counted as a file")
	}
}
