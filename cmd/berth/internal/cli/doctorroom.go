package cli

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/cmd/berth/internal/bundles"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/nodecheck"
)

// scratchRooms returns what pilots of an experiment put into their scratch folder:
// copies of bundles, and images of archives. How large images are that a pilot pulls or
// builds is not known before.
func (a *app) scratchRooms(l *experiment.Loaded) (rooms []nodecheck.Room, err error) {
	if l.Experiment.Executor.CopyBundles {
		installed, err := a.bundles().Installed(usedBundles(l))
		if err != nil {
			return nil, err
		}
		for _, b := range installed {
			rooms = append(rooms, nodecheck.Room{What: "bundle " + b.ID(), MiB: bundler.CopyMiB(b), Copy: filepath.Join(bundles.CopiesIn(""), bundler.CopyOf(b))})
		}
	}
	for _, file := range archives(l) {
		room := nodecheck.Room{What: "image " + file, From: file, Copy: filepath.Join("podman", "images", "overlay-images", "images.json")}
		if fi, absent := os.Stat(file); absent == nil { // otherwise the node says so, too
			room.MiB = fi.Size()>>20 + 1
		}
		rooms = append(rooms, room)
	}
	return rooms, nil
}

// archives returns the archives that the private storage of pilots has images of. Only
// Podman has such a storage.
func archives(l *experiment.Loaded) (files []string) {
	add := func(ref string) {
		for _, kind := range []string{"oci-archive:", "docker-archive:"} {
			if file, is := strings.CutPrefix(ref, kind); is && filepath.IsAbs(file) && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	for i := range l.Plan.Trials {
		t := &l.Plan.Trials[i]
		e, of := &l.Experiment.Cells[t.Cell].Environment, l.Plan.Tasks[t.Place].Task
		if e.Plugin != "podman" || of == nil {
			continue
		}
		var settings struct {
			Base string `json:"base"`
		}
		_ = json.Unmarshal(e.Config.JSON(), &settings) //nolint:errcheck // the plugin has checked it, and no base is none
		if of.Environment.Build == nil || of.Environment.Image != "" {
			add(cmp.Or(of.Environment.Image, settings.Base))
		}
		for _, s := range of.Environment.Sidecars {
			add(s.Image)
		}
	}
	return files
}
