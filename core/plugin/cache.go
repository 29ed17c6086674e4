package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/plugins"
)

// cache stores, in a file for each path, the digest of a binary, valid as long
// as its files are unchanged, and what the binary with that digest serves. It
// outlives the program. A cache file that cannot be read or is damaged counts
// as absent, and the answer is computed again.
type cache struct{ dir string }

// cacheVersion changes with the format of the files; files of other versions
// are ignored.
const cacheVersion = 3

// remembered is a cache entry for a binary. Without a valid stamp the digest
// has to be computed again.
type remembered struct {
	Version  int                   `json:"version"`
	Stamp    stamp                 `json:"stamp"`
	Digest   string                `json:"digest"`
	Protocol int                   `json:"protocol"`
	Plugins  []plugins.Description `json:"plugins"`
}

// settled is how old a change must be before a file's times are trusted: a
// second change within one tick of the clock would not be visible.
const settled = 2 * time.Second

func (c cache) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:12])+".json")
}

// read returns the entry for the binary at path; the zero value if there is
// none.
func (c cache) read(path string) (r remembered) {
	data, err := os.ReadFile(c.file(path))
	if c.dir == "" || err != nil || json.Unmarshal(data, &r) != nil || r.Version != cacheVersion || len(r.Plugins) == 0 {
		return remembered{}
	}
	for _, d := range r.Plugins {
		if d.Check() != nil {
			return remembered{}
		}
	}
	return r
}

// write is best effort: if it fails, the next program asks the binary again.
func (c cache) write(path string, r remembered) {
	if c.dir == "" || os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	if r.Version = cacheVersion; time.Since(time.Unix(0, r.Stamp.CTime)) <= settled {
		r.Stamp = stamp{}
	}
	if data, err := json.MarshalIndent(r, "", "  "); err == nil {
		_ = renameio.WriteFile(c.file(path), append(data, '\n'), 0o600)
	}
}
