package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/plugins"
)

// cache stores, in a file for each path, the digest of a binary, valid as long
// as the file is unchanged, and what the binary with that digest serves. It
// outlives the program. A cache file that cannot be read or is damaged counts
// as absent, and the answer is computed again.
type cache struct{ dir string }

// cacheVersion changes with the format of the files; files of other versions
// are ignored.
const cacheVersion = 2

// stamp identifies the state of a file: it changes when the file is written or
// replaced.
type stamp struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime_ns"`
	CTime int64  `json:"ctime_ns"` // cannot be set back by a writer of the file
}

// remembered is a cache entry for a binary. Without a valid stamp the digest
// has to be computed again.
type remembered struct {
	Version  int                   `json:"version"`
	Stamp    stamp                 `json:"stamp"`
	Digest   string                `json:"digest"`
	Protocol int                   `json:"protocol"`
	Plugins  []plugins.Description `json:"plugins"`
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, fmt.Errorf("look at plugin binary: %w", err)
	}
	s := stamp{Path: path, Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Dev, s.Inode, s.CTime = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return s, nil
}

// settled is how old a change must be before a file's times are trusted: a
// second change within one tick of the clock would not be visible.
const settled = 2 * time.Second

// digestOf returns the SHA-256 of a binary, as "sha256:…".
func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read plugin binary: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read plugin binary %s: %w", path, err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

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
