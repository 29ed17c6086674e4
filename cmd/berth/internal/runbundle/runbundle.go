// Package runbundle writes a run and its tasks as one archive, and unpacks such an
// archive, so that others can audit and replay the run on another machine.
//
// It must not judge a run. What it unpacks is foreign.
package runbundle

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Names in an archive.
const (
	headFile = "berth.json"
	runDir   = "run"
	tasksDir = "tasks"
)

// Bounds of an archive, unpacked.
const (
	maxBytes   = 256 << 30
	maxEntries = 20_000_000
	maxHead    = 64 << 20
	maxWindow  = 64 << 20 // memory of decompression, in bytes
)

// version of the format of archives.
const version = 1

// Head is berth.json of an archive, its first file.
type Head struct {
	Version int    `json:"version"`
	Run     string `json:"run"`   // id of the run
	Berth   string `json:"berth"` // version of the program that wrote the archive
	// Datasets are the folders of tasks in the archive, by the label of the dataset.
	Datasets map[string]string `json:"datasets"`
	// Read says how the tasks are read, by the label of the dataset. Absent in
	// archives of older versions.
	Read map[string]Reading `json:"read,omitempty"`
}

// Reading says how the tasks of a dataset are read.
type Reading struct {
	Format   string          `json:"format"`
	Config   json.RawMessage `json:"config,omitempty"` // of the dataset; absent: none
	AllowEnv []string        `json:"allow_env,omitempty"`
}

// Write writes the run in dir and the folders of its datasets, by label, to w.
func Write(w io.Writer, dir string, head Head, datasets map[string]string) error {
	z, err := zstd.NewWriter(w, zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	head.Version, head.Datasets = version, map[string]string{}
	for label := range datasets {
		head.Datasets[label] = tasksDir + "/" + store.Name(label, 80)
	}
	b, err := json.MarshalIndent(&head, "", "  ")
	if err == nil {
		err = t.WriteHeader(&tar.Header{Name: headFile, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(b)), ModTime: time.Unix(0, 0)})
	}
	if err == nil {
		_, err = t.Write(b)
	}
	if err == nil {
		err = add(t, runDir, dir, nil)
	}
	for label, folder := range datasets {
		if err == nil {
			err = add(t, head.Datasets[label], folder, func(name string) bool { return leftOut(folder, name) })
		}
	}
	return errors.Join(err, t.Close(), z.Close())
}

// leftOut reports whether a folder below a dataset is not part of it: run folders
// stand there if the dataset is the folder of the experiment.
func leftOut(folder, name string) bool {
	if filepath.Base(name) == ".git" {
		return true
	}
	for _, part := range []string{store.ManifestFile, store.JournalDir} {
		if _, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(name), part)); err != nil {
			return false
		}
	}
	return true
}

// add adds the content of a folder to t, below name.
func add(t *tar.Writer, name, folder string, skip func(string) bool) error {
	r, w := io.Pipe()
	go func() {
		_, err := archive.PackFolder(w, folder, archive.Packing{Limits: archive.Limits{Bytes: maxBytes, Entries: maxEntries}, Skip: skip})
		_ = w.CloseWithError(err) // it never fails
	}()
	defer r.Close()
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		h.Name = name + "/" + strings.TrimPrefix(h.Name, "./")
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", "" // the owner is private
		if h.Typeflag == tar.TypeLink {
			h.Linkname = name + "/" + strings.TrimPrefix(h.Linkname, "./")
		}
		if err = t.WriteHeader(h); err == nil {
			_, err = io.Copy(t, in) //nolint:gosec // bounded by the packing
		}
		if err != nil {
			return err
		}
	}
}

// ErrNoBundle means that a file is not an archive of a run.
var ErrNoBundle = errors.New("not an archive of a run: make one with berth export RUN --to bundle")

// Unpacked is an archive in a folder of this machine.
type Unpacked struct {
	Head
	Dir string // folder of the run
	// Tasks are the folders of datasets on this machine, by label.
	Tasks map[string]string
}

// Unpack unpacks the archive in file below dir, which is empty. Fails with
// ErrNoBundle.
func Unpack(file, dir string) (*Unpacked, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer z.Close()
	how := archive.Extraction{Limits: archive.Limits{Bytes: maxBytes, Entries: maxEntries}, Strict: true, Links: true, AnyTarget: true}
	if _, err = archive.ExtractFolder(dir, z, how); err != nil {
		if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, tar.ErrHeader) {
			err = ErrNoBundle
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	u := &Unpacked{Dir: filepath.Join(dir, runDir), Tasks: map[string]string{}}
	b, err := untrusted.Read(dir, headFile, maxHead)
	if err == nil {
		err = json.Unmarshal(b, &u.Head)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", file, ErrNoBundle, err)
	case u.Version != version:
		return nil, fmt.Errorf("%s: the archive has version %d, this berth reads %d: use the berth that made it (%s)", file, u.Version, version, u.Berth)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// A link in a path may lead to any folder of this machine.
	inside := func(name string) bool {
		_, missing := root.Stat(name)
		return missing == nil || errors.Is(missing, fs.ErrNotExist)
	}
	if !inside(runDir) {
		return nil, fmt.Errorf("%s: %w: the run in it is a link", file, ErrNoBundle)
	}
	m, err := store.ReadManifest(u.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if m.Header.Run != u.Run {
		return nil, fmt.Errorf("%s: the archive index names run %s but the manifest is of run %s", file, u.Run, m.Header.Run)
	}
	for label, name := range u.Datasets {
		if !filepath.IsLocal(name) || !slices.Contains(strings.Split(name, "/"), tasksDir) || !inside(name) {
			return nil, fmt.Errorf("%s: the folder %q of the dataset %q leads out of the archive", file, name, label)
		}
		u.Tasks[label] = filepath.Join(dir, filepath.FromSlash(name))
	}
	return u, nil
}
