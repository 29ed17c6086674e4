package schemas

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial/collect"
)

//go:embed *.json
var files embed.FS

// compiled are the schemas by name, made once.
var compiled = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	out := map[string]*jsonschema.Schema{}
	for _, e := range entries {
		b, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err == nil {
			err = c.AddResource("file:///"+e.Name(), doc)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	for _, e := range entries {
		s, err := c.Compile("file:///" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		out[strings.TrimSuffix(e.Name(), ".json")] = s
	}
	return out, nil
})

// Check says what of a JSON text is not as the schema of that name has it.
func Check(schema string, text []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	s := all[schema]
	if s == nil {
		return fmt.Errorf("there is no schema %q", schema)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// attempt is the folder of any attempt.
const attempt = store.TrialsDir + "/*/*/"

// runFiles are the files of a run folder that have a schema. Each line of a file of
// lines is one text.
var runFiles = []struct {
	path, schema string
	lines        bool
}{
	{store.ManifestFile, "manifest-line", true},
	{store.SummaryFile, "summary", false},
	{store.JournalDir + "/*", "journal-line", true},
	{cluster.Dir + "/queue/*", "cluster-job", false},
	{cluster.Dir + "/pilots/*.jsonl", "cluster-line", true},
	{cluster.Dir + "/coordinators/*.jsonl", "cluster-line", true},
	{attempt + record.ExchangesFile, "exchange", true},
	{attempt + record.ResultFile, "result", false},
	{attempt + store.ChecksumsFile, "checksums", false},
	{attempt + record.EventsFile, "event", true},
	{attempt + record.TurnsFile, "turn", true},
	{attempt + record.StepsFile, "step", true},
	{attempt + record.SurfaceFile, "surface-line", true},
	{attempt + record.VerdictsFile, "verdict", true},
	{attempt + record.TrajectoryFile, "trajectory", false},
	{attempt + record.LogFile, "log-line", true},
}

// ofFile says which schema describes a file of a run folder, by its path in it. Files
// of others, such as what was collected from a sandbox, have none.
func ofFile(name string) (schema string, lines bool) {
	for _, f := range runFiles {
		if ok, _ := path.Match(f.path, name); ok { //nolint:errcheck // the patterns are well-formed
			return f.schema, f.lines
		}
	}
	return "", false
}

// isArtifacts says whether a file of a run folder is the manifest of what was
// collected: that of the attempt, or of one of its stages where it has several.
// Of an attempt with one stage a file of that name further down is one that was
// collected.
func isArtifacts(dir, name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) < 5 || parts[0] != store.TrialsDir || parts[3] != record.ArtifactsDir || parts[len(parts)-1] != collect.ManifestFile {
		return false
	}
	if len(parts) == 5 {
		return true
	}
	_, err := os.Lstat(filepath.Join(dir, filepath.Join(parts[:4]...), collect.ManifestFile))
	return len(parts) == 6 && errors.Is(err, fs.ErrNotExist)
}

// CheckRun checks every file of a run folder that Berth wrote, and returns how
// many texts it looked at. A last line without its end is what a kill leaves.
func CheckRun(dir string) (checked int, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, walkErr error) error {
		if walkErr != nil || !d.Type().IsRegular() {
			return walkErr
		}
		rel, relErr := filepath.Rel(dir, p)
		schema, lines := ofFile(filepath.ToSlash(rel))
		if isArtifacts(dir, filepath.ToSlash(rel)) {
			schema = "artifacts"
		}
		if relErr != nil || schema == "" {
			return relErr
		}
		n, checkErr := checkFile(p, schema, lines)
		checked += n
		return checkErr
	})
	return checked, err
}

func checkFile(file, schema string, lines bool) (checked int, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	texts := [][]byte{b}
	if lines {
		if end := bytes.LastIndexByte(b, '\n'); end >= 0 {
			b = b[:end]
		} else {
			b = nil
		}
		texts = nil
		sc := bufio.NewScanner(bytes.NewReader(b))
		sc.Buffer(nil, 64<<20)
		for sc.Scan() {
			texts = append(texts, bytes.Clone(sc.Bytes()))
		}
		err = sc.Err()
	}
	for i, text := range texts {
		if e := Check(schema, text); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: text %d: %w", file, i+1, e))
		}
	}
	return len(texts), err
}
