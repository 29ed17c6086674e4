package dockerfile

import (
	"slices"
	"testing"
)

func TestHereDocumentsNeedANewerReader(t *testing.T) {
	for text, want := range map[string]bool{
		"FROM a\nRUN <<EOF\nx\nEOF\n": true, "# syntax=docker/dockerfile:1\nFROM a\nRUN <<EOF\nx\nEOF\n": false, "FROM a\n": false,
	} {
		if w := Builder([]byte(text), nil); w.HereDocs != want {
			t.Errorf("%q: %+v", text, w)
		}
	}
}

func TestWhatADockerfileWantsOfItsBuilder(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		buildKit   bool
		images     []string
	}{
		{"nothing special", "FROM a\nRUN x\nCOPY --chown=1:1 a b\nHEALTHCHECK --interval=1s CMD x\n", false, []string{"a"}},
		{"a mount", "FROM a\nRUN --mount=type=cache,target=/c x\n", true, []string{"a"}},
		{"a mount of an image", "FROM a\nRUN --mount=from=b:1,target=/c x\n", true, []string{"a", "b:1"}},
		{"a mode", "FROM a\nCOPY --chmod=755 a b\n", true, []string{"a"}},
		{"a mode of ADD", "FROM a\nADD --chmod=755 a b\n", true, []string{"a"}},
		{"a link", "FROM a\ncopy --link a b\n", true, []string{"a"}},
		{"a here-document", "FROM a\nRUN <<EOF\nx\nEOF\n", true, []string{"a"}},
		{"stages", "ARG V=2\nFROM a:$V AS one\nFROM one\nCOPY --from=one a b\nCOPY --from=0 a b\nCOPY --from=c/d a b\nFROM scratch\n", false, []string{"a:2", "c/d"}},
		{"no Dockerfile", "hello\n", false, nil},
	} {
		if w := Builder([]byte(tt.text), nil); w.BuildKit != tt.buildKit || !slices.Equal(w.Images, tt.images) {
			t.Errorf("%s: %+v; want %t, %q", tt.name, w, tt.buildKit, tt.images)
		}
	}
}
