package schemas

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// ofFile says which schema describes a file of a run folder, by its path in
// it; each line of a file of lines is one text. Files of others, such as what
// was collected from a sandbox, have none.
func ofFile(path string) (schema string, lines bool) {
	parts := strings.Split(filepath.ToSlash(path), "/")
	name := parts[len(parts)-1]
	switch {
	case path == store.ManifestFile:
		return "manifest-line", true
	case path == store.SummaryFile:
		return "summary", false
	case parts[0] == store.JournalDir:
		return "journal-line", true
	case parts[0] == cluster.Dir && len(parts) == 3:
		switch {
		case parts[1] == "queue":
			return "cluster-job", false
		case (parts[1] == "pilots" || parts[1] == "coordinators") && strings.HasSuffix(path, ".jsonl"):
			return "cluster-line", true
		}
		return "", false
	case parts[0] != store.TrialsDir:
		return "", false
	case len(parts) == 5 && strings.Join(parts[3:], "/") == record.ExchangesFile:
		return "exchange", true
	case len(parts) != 4:
		return "", false
	}
	switch name {
	case record.ResultFile:
		return "result", false
	case store.ChecksumsFile:
		return "checksums", false
	case record.EventsFile:
		return "event", true
	case record.TurnsFile:
		return "turn", true
	case record.StepsFile:
		return "step", true
	case record.SurfaceFile:
		return "surface-line", true
	case record.VerdictsFile:
		return "verdict", true
	case record.TrajectoryFile:
		return "trajectory", false
	case record.LogFile:
		return "log-line", true
	default:
		return "", false
	}
}

// isArtifacts says whether a file of a run folder is the manifest of what was
// collected: that of the attempt, or of one of its stages where it has several.
// Of an attempt with one stage a file of that name further down is one that was
// collected.
func isArtifacts(dir, path string) bool {
	parts := strings.Split(path, "/")
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

func checkFile(path, schema string, lines bool) (checked int, err error) {
	b, err := os.ReadFile(path)
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
			err = errors.Join(err, fmt.Errorf("%s: text %d: %w", path, i+1, e))
		}
	}
	return len(texts), err
}
