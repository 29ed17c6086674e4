package maker

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/environments/local/internal/base"
)

// division says how a visible folder is put together from several overlays. A
// mount of the host below it makes that necessary. In a user namespace the kernel
// refuses (EINVAL) an overlay of a folder with mounts below, because that would
// show what they cover; for root it does show that. An overlay of a folder
// without mounts below is allowed, also if that folder is itself a mount.
//
// Paths are relative to the visible folder, parents first.
type division struct {
	above []string // folders that have mounts below: ".", "local". What lies in them is copied
	whole []string // all other folders in those: "bin", "local/bin", "local/go". Each is a separate overlay
}

// divide finds the parts of a folder with these mounts below. It leaves out
// folders that not every user may read, because no sandbox shows them, and
// mounts that do not answer.
func divide(folder string, points []string) (d division) {
	above := map[string]bool{}
	for _, p := range points {
		for dir := path.Dir(p); !above[dir]; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	var look func(dir string)
	look = func(dir string) {
		d.above = append(d.above, dir)
		entries, err := os.ReadDir(filepath.Join(folder, dir))
		if err != nil {
			return // without its folders
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			info, err := os.Lstat(filepath.Join(folder, name))
			switch {
			case err != nil || !info.IsDir() || !base.ForAll(info.Mode()):
			case above[name]:
				look(name)
			default:
				d.whole = append(d.whole, name)
			}
		}
	}
	if len(points) > 0 {
		look(".")
	}
	return d
}

// mountsBelow returns the mounts below folders, relative to the root.
func mountsBelow(folders []string) (below []string, err error) {
	points, err := mountPoints("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		for _, p := range within("/"+f, points) {
			below = append(below, f+"/"+p)
		}
	}
	return below, nil
}

// within returns those of the paths that are below folder, relative to it.
func within(folder string, paths []string) (below []string) {
	for _, p := range paths {
		if rel, ok := strings.CutPrefix(p, folder+"/"); ok {
			below = append(below, rel)
		}
	}
	return below
}

// look reports whether name, relative to the root, is a folder, and whether every
// user may read it and all folders above it.
func look(name string) (folder, shown bool) {
	info, err := os.Lstat("/" + name)
	folder = err == nil && info.IsDir()
	for shown = folder; shown && name != "."; name = path.Dir(name) {
		info, err = os.Lstat("/" + name)
		shown = err == nil && base.ForAll(info.Mode())
	}
	return folder, shown
}

// mountPoints returns the paths on which something is mounted, in the order of
// the mounts, each once.
func mountPoints(file string) (points []string, err error) {
	text, err := os.ReadFile(file)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		p, bad := strconv.Unquote(`"` + strings.ReplaceAll(fields[4], `"`, `\"`) + `"`) // \040 is a space
		if bad != nil || seen[p] {
			continue
		}
		seen[p] = true
		points = append(points, p)
	}
	return points, err
}
