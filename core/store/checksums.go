package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
)

// ChecksumsFile lists all other files of an attempt but result.json, with their
// checksums. The journal has the checksums of these two.
const ChecksumsFile = "files.json"

// Checksums is the content of ChecksumsFile.
type Checksums struct {
	Version int `json:"version"`
	// Files are checksums, "sha256:" and hex, by the slash-separated path below
	// the attempt, which is quoted as in Go if it is not UTF-8. Of a link it is
	// "link:" and where it leads.
	Files map[string]string `json:"files"`
}

// ChecksumsOf computes the checksums of the files in the folder of an attempt, but
// those of ChecksumsFile and result.json, and what a killed writer left (isPart).
func ChecksumsOf(dir string) (Checksums, error) {
	s := Checksums{Version: FormVersion, Files: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && filepath.Dir(path) == filepath.Clean(dir) && isPart(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil || d.IsDir():
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == ChecksumsFile || name == record.ResultFile {
			return err
		}
		sum := d.Type().String() // a file that is neither has no content
		switch {
		case d.Type() == fs.ModeSymlink:
			sum, err = os.Readlink(path)
			sum = "link:" + sum
		case d.Type().IsRegular():
			sum, err = SumOf(path)
		}
		if !utf8.ValidString(name) { // of a file of an agent
			name = strconv.Quote(name)
		}
		s.Files[filepath.ToSlash(name)] = sum
		return err
	})
	return s, err
}

// isPart reports whether a name in the folder of an attempt is that of a file or folder
// from which others get their contents at once. A writer that is killed leaves it.
func isPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".part")
}

// SumOf returns the checksum of a file, "sha256:" and hex.
func SumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// sum writes ChecksumsFile, of an attempt whose other files are complete.
func (a *Attempt) sum() error {
	s, err := ChecksumsOf(a.dir)
	if err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = a.WriteFile(ChecksumsFile, append(b, '\n'))
	}
	return err
}

// sums returns the checksums of those of these files that are in dir.
func sums(dir string, names ...string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		if sum, err := SumOf(filepath.Join(dir, name)); err == nil {
			all[name] = sum
		}
	}
	return all
}
