package harborjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what is copied of a trial.
const (
	maxFiles = 10_000
	maxBytes = 4 << 30
)

// copier copies files of one attempt, up to the bounds.
type copier struct {
	files int
	bytes int64
	lost  []string
}

func (c *copier) note(format string, args ...any) {
	c.lost = append(c.lost, fmt.Sprintf(format, args...))
}

// tree copies the regular files below a folder. to returns the name of a file in
// the other folder, or "" to leave it out. A folder that does not exist is empty.
func (c *copier) tree(from, into string, to func(string) string) error {
	if fi, err := os.Lstat(from); err != nil || !fi.IsDir() {
		return nil //nolint:nilerr // there is nothing to copy
	}
	names, more, err := untrusted.List(from, maxFiles)
	if err != nil {
		return err
	}
	if more {
		c.note("%s: not all of its files were copied", filepath.Base(from))
	}
	for _, name := range names {
		as := to(name)
		if as == "" {
			continue
		}
		if err = c.file(from, name, filepath.Join(into, filepath.FromSlash(as))); err != nil {
			return err
		}
	}
	return nil
}

// file copies one file. Only an error of writing is returned.
func (c *copier) file(from, name, to string) error {
	if c.files == maxFiles || c.bytes >= maxBytes {
		c.note("%s was not copied: the trial has more than %d files or %d GiB", name, maxFiles, maxBytes>>30)
		return nil
	}
	in, err := untrusted.Open(from, name, maxBytes-c.bytes)
	if err != nil {
		c.note("not copied: %v", err)
		return nil
	}
	defer in.Close()
	err = os.MkdirAll(filepath.Dir(to), 0o755)
	if errors.Is(err, syscall.ENOTDIR) {
		c.note("%s was not copied: there is a file where its folder would be", name)
		return nil
	}
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		c.note("%s was not copied: two files have this name", name)
		return nil
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxBytes-c.bytes))
	c.files++
	c.bytes += n
	return errors.Join(err, out.Close())
}

// copy copies the files of an attempt to the places that they have in a trial of
// a job.
func (e *exporter) copy(from, dir string, r *record.Result) (lost []string, err error) {
	c := &copier{}
	several := len(r.Stages) > 1
	for _, sub := range []string{agentDir, verifierDir, artifactsDir} {
		if err = os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	same := func(name string) string { return name }
	if err = c.tree(filepath.Join(from, record.AgentDir), filepath.Join(dir, agentDir), func(name string) string {
		if name == record.TrajectoryFile {
			return "native-" + name // the place of the one that is checked
		}
		return name
	}); err != nil {
		return nil, err
	}
	bad, err := export.CopyTrajectory(from, filepath.Join(dir, agentDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.As(err, new(*export.InvalidError)):
		c.note("%v", err)
	case err != nil:
		return nil, err
	}
	c.lost = append(c.lost, bad...)
	err = c.tree(filepath.Join(from, record.VerifierDir), dir, func(name string) string { return verifierName(name, r, several) })
	if err != nil {
		return nil, err
	}
	if several {
		err = c.tree(filepath.Join(from, record.ArtifactsDir), dir, func(name string) string {
			stage, rest, ok := strings.Cut(name, "/")
			if !ok || !isStage(r, stage) {
				return path.Join(artifactsDir, name)
			}
			return path.Join("steps", stage, artifactsDir, rest)
		})
		return c.lost, err
	}
	if err = c.tree(filepath.Join(from, record.ArtifactsDir), filepath.Join(dir, artifactsDir), func(name string) string {
		if name == collect.ManifestFile {
			return ""
		}
		return same(name)
	}); err != nil {
		return nil, err
	}
	return c.lost, manifest(filepath.Join(from, record.ArtifactsDir), filepath.Join(dir, artifactsDir))
}

func isStage(r *record.Result, name string) bool {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return true
		}
	}
	return false
}

// verifierName returns where a file of a verifier is in a trial of a job. What
// the verifier left in its folder of logs is in verifier/ there.
func verifierName(name string, r *record.Result, several bool) string {
	at := verifierDir
	if stage, rest, ok := strings.Cut(name, "/"); several && ok && isStage(r, stage) {
		at, name = path.Join("steps", stage, verifierDir), rest
	}
	if rest, ok := strings.CutPrefix(name, "logs/"); ok {
		name = rest
	}
	return path.Join(at, name)
}

// manifest writes manifest.json of the artifacts in Harbor's form, in which an
// artifact that was not found has no line.
func manifest(from, into string) error {
	b, err := untrusted.Read(from, collect.ManifestFile, 64<<20)
	if err != nil {
		return nil //nolint:nilerr // without it there were no artifacts
	}
	var entries []collect.Entry
	if err = json.Unmarshal(b, &entries); err != nil {
		return nil //nolint:nilerr // it is not a manifest
	}
	type entry struct {
		Source      string   `json:"source"`
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Status      string   `json:"status"`
		Service     string   `json:"service"`
		Exclude     []string `json:"exclude"`
	}
	all := []entry{}
	for i := range entries {
		e := &entries[i]
		if e.Type == "file" || e.Type == "directory" {
			all = append(all, entry{e.Source, e.Destination, e.Type, string(e.Status), e.Service, append([]string{}, e.Exclude...)})
		}
	}
	return writeJSON(filepath.Join(into, collect.ManifestFile), all)
}
