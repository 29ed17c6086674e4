package folder

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// maxNames bounds a list of names, in bytes.
const maxNames = 16 << 20

// Choose returns the paths of tasks whose last part an experiment wants: it is in a
// file with a JSON list of names, or one name in each line. A name there may also be a
// path of its file or folder, with the extension ext, of which the last part counts.
// file is relative to the folder of the dataset, and may lie outside of it, because the
// experiment names it. what is what the tasks are called.
func Choose(paths []string, o task.Options, file, ext, what string) (chosen []string, err error) {
	if file == "" {
		return paths, nil
	}
	missing, err := names(o.Dataset, file, ext)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	wanted := maps.Clone(missing)
	for _, p := range paths {
		name := filepath.Base(filepath.Join(o.Dataset, p)) // p may be "."
		if wanted[name] {
			chosen = append(chosen, p)
		}
		delete(missing, name)
	}
	if left := slices.Sorted(maps.Keys(missing)); len(left) > 0 {
		return nil, fmt.Errorf("read dataset: %s has %d names that are not %s of the dataset, such as %.100q", file, len(left), what, left[0])
	}
	return chosen, nil
}

func names(dataset, file, ext string) (map[string]bool, error) {
	at := filepath.FromSlash(file)
	if !filepath.IsAbs(at) {
		at = filepath.Join(dataset, at)
	}
	data, err := untrusted.Read(filepath.Dir(at), filepath.Base(at), maxNames)
	if err != nil {
		return nil, fmt.Errorf("names: %w", err)
	}
	var list []string
	switch text := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff")); {
	case strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{"):
		if err = json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("names: %s is not a JSON list of names: %w", file, err)
		}
	default:
		list = strings.Split(text, "\n")
	}
	all := map[string]bool{}
	for _, name := range list {
		if name = strings.TrimSpace(name); name != "" {
			all[strings.TrimSuffix(path.Base(name), ext)] = true
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no names: write a JSON list of names, or one name in each line", file)
	}
	return all, nil
}
