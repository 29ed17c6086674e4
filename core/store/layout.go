package store

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Names of files and folders in a run folder.
const (
	ExperimentDir = "experiment"
	ManifestFile  = "manifest.jsonl"
	JournalDir    = "journal"
	SummaryFile   = "summary.json"
	// PluginsFile is what plugins wrote to stderr, a plugin.Line on each line. The
	// run has such a file, and each attempt has one with the lines that were
	// written in its calls, as far as this is known.
	PluginsFile = "plugins.jsonl"
	TrialsDir   = "trials"
)

// maxName is how many bytes of a task's name are in the name of its folder.
const maxName = 80

// Name makes s, which may contain anything, safe as a part of a file name:
// letters, digits, "." "_" and "-", not beginning with "." or "-", at most
// limit bytes, never empty. Different s may give the same name.
func Name(s string, limit int) string {
	var b strings.Builder
	gap := false
	for _, r := range s {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-'
		switch {
		case !ok:
			gap = true
			continue
		case b.Len() == 0 && (r == '.' || r == '-'):
			continue
		case gap && b.Len() > 0:
			b.WriteByte('_')
		}
		gap = false
		b.WriteRune(r)
	}
	name := b.String()
	if len(name) > limit {
		name = name[:limit]
	}
	if name == "" {
		return "x"
	}
	return name
}

// TrialDir returns the name of the folder of a trial, below TrialsDir. cell is
// the slug of the cell, id the id of the trial.
func TrialDir(task, cell string, repetition int, id string) string {
	return fmt.Sprintf("%s--%s--%d-%s", Name(task, maxName), Name(cell, maxName), repetition, Name(id[:min(8, len(id))], 8))
}

// keptName returns the slash-separated name of a file of the experiment in the
// folder of the experiment.
func keptName(name string) string {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		local = filepath.Join("outside", strings.TrimLeft(filepath.Join(string(filepath.Separator), local), string(filepath.Separator)))
	}
	return filepath.ToSlash(filepath.Clean(local))
}

// Kept returns where the run in dir keeps a file of its experiment, by
// [File.Name].
func (h *Header) Kept(dir, name string) string {
	return filepath.Join(dir, h.Folder(), filepath.FromSlash(keptName(name)))
}

// AttemptDir returns the name of the folder of an attempt, below that of its
// trial.
func AttemptDir(attempt int) string { return fmt.Sprintf("attempt-%d", attempt) }

// local reports whether a path that was read from a file stays below its
// folder.
func local(path string) bool { return path != "" && filepath.IsLocal(filepath.FromSlash(path)) }
