// Package image applies a Dockerfile without RUN instructions to the host's own
// programs as the base image. It determines the image's settings and packs the
// files that the Dockerfile copies.
//
// It only reads the build folder, and never through a link that leads out of
// it. It must not know sandboxes. It refuses, with the line, what cannot be
// applied.
package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/environments/internal/judge"
	"github.com/berth-eval/berth/plugins/environment"
)

// Image is the result of reading a Dockerfile.
type Image struct {
	Facts    environment.ImageFacts
	From     string                // the base image that it names; empty: there is no Dockerfile
	Refusals []environment.Problem // everything that cannot be applied

	Build environment.Image // what it was read of; File is set, if Build is

	steps []dockerfile.Step
}

// Base is the value of ImageFacts.Base if the host's own programs are the base.
const Base = "host"

// elsewhere ends every refusal.
const elsewhere = `choose an environment that builds images (environment "podman" or "docker")`

// Read reads the Dockerfile of a build. Without a build folder the image is
// only the base. An error means that the file cannot be read
// (environment.ErrBadImage) or is invalid (environment.ErrBuildFailed).
// Refusals lists what cannot be applied.
func Read(build environment.Image) (*Image, error) {
	im := &Image{Facts: environment.ImageFacts{Base: Base, Digest: build.Digest}, Build: build}
	if build.Build == "" {
		return im, nil
	}
	if im.Build.File == "" {
		im.Build.File = "Dockerfile"
	}
	root, err := os.OpenRoot(build.Build)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", environment.ErrBadImage, err)
	}
	defer root.Close()
	text, added := build.Files[im.Build.File]
	if !added {
		text, err = dockerfile.ReadFile(root, im.Build.File)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", environment.ErrBadImage, im.path(), err)
	}
	f, err := dockerfile.Read(text, build.Target, build.Args)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", environment.ErrBuildFailed, im.path(), err)
	}
	im.From, im.steps = f.From, f.Steps
	im.Facts.Env, im.Facts.User, im.Facts.Workdir = f.Env, f.User, f.Workdir
	im.Facts.Entrypoint, im.Facts.Cmd = f.Entrypoint, f.Cmd
	if len(build.Files) > 1 || len(build.Files) == 1 && !added {
		im.refuse(1, "copies files of a compose file", "they are not in a folder")
	}
	for _, r := range f.Refused {
		im.refuse(r.Line, r.Text, r.Why)
	}
	for _, s := range f.Steps {
		if s.Copy != nil && judge.Reserved(s.Copy.To) {
			im.refuse(s.Copy.Line, "copies to "+s.Copy.To, "that place is made by the sandbox itself")
		}
	}
	return im, nil
}

// path returns the name of the Dockerfile for messages.
func (im *Image) path() string { return filepath.Join(im.Build.Build, im.Build.File) }

func (im *Image) refuse(line int, what, why string) {
	im.Refusals = append(im.Refusals, environment.Problem{
		Summary: fmt.Sprintf("Dockerfile line %d: %s", line, what),
		Detail:  fmt.Sprintf("Environment \"local\" does not apply it (%s, on the host's own programs): %s.", why, elsewhere),
	})
}

// Empty reports whether Pack has nothing to write.
func (im *Image) Empty() bool { return len(im.steps) == 0 }

// Owners returns the users and groups other than root that will own the files.
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
