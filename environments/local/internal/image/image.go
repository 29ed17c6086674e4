package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// Image is what a Dockerfile comes to.
type Image struct {
	Facts    environment.ImageFacts
	From     string                // what it is meant to be built on; empty: no Dockerfile
	Refusals []environment.Problem // what cannot be applied; all of them

	steps []dockerfile.Step
	dir   string
	file  string
}

// Base is ImageFacts.Base where the host's own programs are the base.
const Base = "host"

// elsewhere is said wherever something is refused.
const elsewhere = `choose an environment that builds images (environment "podman" or "docker")`

// Read reads the Dockerfile of a build; with no build folder the image is the
// base alone. An error means that it cannot be read (environment.ErrBadImage)
// or makes no sense (environment.ErrBuildFailed); what cannot be applied is in
// Refusals.
func Read(build environment.Image) (*Image, error) {
	im := &Image{Facts: environment.ImageFacts{Base: Base, Digest: build.Digest}, dir: build.Build, file: build.File}
	if build.Build == "" {
		return im, nil
	}
	if im.file == "" {
		im.file = "Dockerfile"
	}
	root, err := os.OpenRoot(build.Build)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", environment.ErrBadImage, err)
	}
	defer root.Close()
	text, err := root.ReadFile(filepath.FromSlash(im.file))
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", environment.ErrBadImage, im.path(), err)
	}
	f, err := dockerfile.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", environment.ErrBuildFailed, im.path(), err)
	}
	im.From, im.steps = f.From, f.Steps
	im.Facts.Env, im.Facts.User, im.Facts.Workdir = f.Env, f.User, f.Workdir
	im.Facts.Shell, im.Facts.Entrypoint, im.Facts.Cmd = f.Shell, f.Entrypoint, f.Cmd
	for _, r := range f.Refused {
		im.refuse(r.Line, r.Text, r.Why)
	}
	for _, s := range f.Steps {
		if s.Copy != nil && isReserved(s.Copy.To) {
			im.refuse(s.Copy.Line, "copies to "+s.Copy.To, "that place is made by the sandbox itself")
		}
	}
	return im, nil
}

// path is how the Dockerfile is named in messages.
func (im *Image) path() string { return filepath.Join(im.dir, im.file) }

func (im *Image) refuse(line int, what, why string) {
	im.Refusals = append(im.Refusals, environment.Problem{
		Summary: fmt.Sprintf("Dockerfile line %d: %s", line, what),
		Detail:  fmt.Sprintf("Environment \"local\" does not apply it (%s, on the host's own programs): %s.", why, elsewhere),
	})
}

// isReserved says whether a path of the image is one that no file can be in.
func isReserved(p string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	return slices.Contains([]string{"proc", "dev", "sys", "berth"}, top)
}

// Empty says whether Pack has nothing to write.
func (im *Image) Empty() bool { return len(im.steps) == 0 }

// Owners are the users and groups that the files are to belong to, beside root.
func (im *Image) Owners() (names []string) {
	for _, s := range im.steps {
		if s.Copy == nil {
			continue
		}
		for _, name := range []string{s.Copy.User, s.Copy.Group} {
			if name != "" && name != "0" && name != "root" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
