package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// Prefixes of the names of images that we make. None of them is in a registry.
const (
	builds   = "localhost/berth/build:"
	archives = "localhost/berth/archive:"
)

// loadTime is the longest load of an archive.
const loadTime = 30 * time.Minute

// fileOf is the name of an image's Dockerfile in its folder.
func fileOf(im environment.Image) string {
	return cmp.Or(im.File, "Dockerfile")
}

// wantsOf is what an image's Dockerfile wants; nothing where it cannot be read,
// which the build says.
func wantsOf(im environment.Image) dockerfile.Wants {
	text, added := im.Files[fileOf(im)]
	if !added {
		var err error
		if text, err = os.ReadFile(filepath.Join(im.Build, fileOf(im))); err != nil {
			return dockerfile.Wants{}
		}
	}
	return dockerfile.Builder(text, im.Args)
}

// archive splits a reference to an archive.
func archive(ref string) (kind, file string, ok bool) {
	for _, kind := range []string{"oci-archive", "docker-archive"} {
		if file, ok := strings.CutPrefix(ref, kind+":"); ok {
			return kind, file, true
		}
	}
	return "", "", false
}

// from returns the reference that a sandbox starts from: the base of the environment if
// the task names no image. Empty: an image that is built, or known by its digest.
func (j *judgement) from(want environment.Image) string {
	if want.Build == "" && want.Digest == "" && want.Ref == "" {
		return j.config.Base
	}
	return want.Ref
}

// Prepare pulls, builds or loads an image, once even if many callers ask.
func (e *Environment) Prepare(ctx context.Context, want environment.Image, raw json.RawMessage, log func(string)) (environment.Image, error) {
	j, err := e.judge(ctx, environment.Spec{Image: want, Config: raw, Network: environment.Network{Mode: environment.NetworkNone}})
	if err != nil {
		return environment.Image{}, err
	}
	if err = j.Refused(); err != nil {
		return environment.Image{}, err
	}
	im, err := e.image(ctx, j, want, log)
	if err != nil {
		return environment.Image{}, err
	}
	var from string
	if _, _, ok := archive(j.from(want)); ok {
		from = j.from(want)
	}
	return environment.Image{Ref: cmp.Or(im.Named, want.Ref, from, im.Ref), Digest: im.ID}, nil
}

// image returns the image of a sandbox and pulls, builds or loads it if it is
// missing.
func (e *Environment) image(ctx context.Context, j *judgement, want environment.Image, log func(string)) (Image, error) {
	if log == nil {
		log = func(string) {}
	}
	r := j.remote
	want.Ref = j.from(want)
	name, err := nameOf(&want)
	if err != nil {
		return Image{}, err
	}
	if name != "" {
		if err := e.use(ctx, r, name); err != nil {
			return Image{}, err
		}
	}
	if want.Build != "" {
		return build(ctx, j, want, name, log)
	}
	if want.Digest != "" { // set by Prepare
		im, err := r.image(ctx, want.Digest)
		if err == nil || !errors.Is(err, ErrAbsent) || want.Ref == "" {
			return im, bad(want.Digest, err)
		}
	}
	if kind, file, ok := archive(want.Ref); ok {
		return load(ctx, r, kind, file, name)
	}
	return pull(ctx, j, want, log)
}

// nameOf returns our name of an image that we build or load; empty: it is
// neither. It fills in the digest of a folder.
func nameOf(want *environment.Image) (string, error) {
	_, file, isArchive := archive(want.Ref)
	switch {
	case want.Build != "":
		if want.Digest == "" {
			var err error
			if want.Digest, err = digestOf(*want); err != nil {
				return "", fmt.Errorf("read build context %q: %w", want.Build, err)
			}
		}
		return builds + short(append([]string{want.Digest, fileOf(*want)}, choices(want)...)...), nil
	case isArchive:
		info, err := os.Stat(file)
		if err != nil {
			return "", lostArchive(file, err)
		}
		return archivesOf() + short(file, fmt.Sprint(info.Size()), info.ModTime().String()), nil
	case strings.HasPrefix(want.Ref, builds):
		return want.Ref, nil
	}
	return "", nil
}

// lostArchive is the error for an archive that was there a moment ago.
func lostArchive(file string, err error) error {
	return fmt.Errorf("%w: the archive of the image can no longer be read on this machine: %w: put %q back, and repeat the attempt", environment.ErrBadImage, err, file)
}

// choices are what a build takes beside its folder; nothing if it has the usual.
func choices(want *environment.Image) (all []string) {
	if want.Target == "" && len(want.Args) == 0 {
		return nil
	}
	all = append(all, want.Target)
	for _, name := range slices.Sorted(maps.Keys(want.Args)) {
		all = append(all, name, want.Args[name])
	}
	return all
}

// image returns an image of the engine. Images are cached by ID.
func (r *remote) image(ctx context.Context, ref string) (Image, error) {
	r.mu.Lock()
	im, ok := r.known[ref]
	r.mu.Unlock()
	if ok {
		return im, nil
	}
	im, err := r.Inspect(ctx, ref)
	if err != nil {
		return Image{}, fmt.Errorf("%s image: %w", r.name, err)
	}
	if im.Ref == "" {
		im.Ref = ref
	}
	r.mu.Lock()
	r.known[im.ID] = im
	r.mu.Unlock()
	return im, nil
}

// bad converts a missing image to the error of the contract.
func bad(ref string, err error) error {
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrNoImage) {
		return fmt.Errorf("%w: image %q: %w", environment.ErrBadImage, ref, err)
	}
	return err
}

// pull finds or fetches an image of a registry.
func pull(ctx context.Context, j *judgement, want environment.Image, log func(string)) (Image, error) {
	r := j.remote
	named, err := reference.ParseDockerRef(want.Ref)
	if err != nil {
		return Image{}, fmt.Errorf("%w: image %q: %w", environment.ErrBadImage, want.Ref, err)
	}
	ref := named.String()
	if r.FindsLocal() && !strings.HasPrefix(want.Ref, reference.Domain(named)+"/") {
		local := "localhost/" + want.Ref
		if im, missing := r.image(ctx, local); !errors.Is(missing, ErrAbsent) {
			return im, missing
		}
	}
	here := func() (Image, error) { return r.image(ctx, ref) }
	im, err := here()
	local := reference.Domain(named) == "localhost" // of no registry, by custom
	pulled, _ := r.tried(ref)
	switch {
	case err == nil && (j.config.Pull != "always" || local || pulled):
		return im, nil
	case err != nil && !errors.Is(err, ErrAbsent):
		return Image{}, err
	case local || j.config.Pull == "never":
		return Image{}, fmt.Errorf("%w: image %q is not on this machine and is not pulled (pull = %q; names under localhost/ are never pulled): load or build it first",
			environment.ErrBadImage, ref, j.config.Pull)
	}
	return r.once(ctx, job{what: ref, limit: cmp.Or(want.Timeout, j.config.PullTime), here: here, fresh: err == nil, work: func(ctx context.Context) error {
		log("pull " + ref)
		err := r.Pull(ctx, ref, log)
		switch {
		case errors.Is(err, ErrNoImage):
			err = fmt.Errorf("%w: image %q: %w", environment.ErrBadImage, ref, err)
		case errors.Is(err, ErrBusy):
			err = fmt.Errorf("%w: pull image %q: %w", environment.ErrNoCapacity, ref, err)
		case err != nil:
			err = fmt.Errorf("pull image %q: %w", ref, err)
		}
		return err
	}})
}

// build finds or builds the image of a folder.
func build(ctx context.Context, j *judgement, want environment.Image, name string, log func(string)) (Image, error) {
	r := j.remote
	here := func() (Image, error) { return r.image(ctx, name) }
	if im, err := here(); err == nil || !errors.Is(err, ErrAbsent) {
		return im, err
	}
	caller := ctx // whose end is not a failure of the build
	return r.once(ctx, job{what: name, limit: cmp.Or(want.Timeout, j.config.BuildTime), here: here, work: func(ctx context.Context) error {
		if _, err := r.tried(name); err != nil {
			return err
		}
		log("build " + want.Build)
		tar := contextOf(want)
		defer tar.Close()
		labels := mine()
		labels[labelBuild] = want.Digest
		b := Build{Context: tar, File: fileOf(want), Name: name, Labels: labels, Target: want.Target, Args: want.Args, Wants: wantsOf(want)}
		if j.config.BuildNet == "none" {
			b.Network = j.config.BuildNet
		}
		err := r.Build(ctx, b, log)
		if errors.Is(err, ErrBuild) || errors.Is(err, context.DeadlineExceeded) && caller.Err() == nil {
			err = fmt.Errorf("%w: %s in %s: %w", environment.ErrBuildFailed, b.File, want.Build, err)
			r.record(name, err)
		}
		return err
	}})
}

// tried reports whether this process has pulled, built or loaded an image, and why it
// could not be built: it is not built again for each trial.
func (r *remote) tried(what string) (ok bool, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed, ok = r.done[what]
	return ok, failed
}

func (r *remote) record(what string, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[what] = failed
}

// load finds or loads the image of an archive.
func load(ctx context.Context, r *remote, kind, file, name string) (Image, error) {
	if kind == "oci-archive" && !r.LoadsOCI() {
		return Image{}, fmt.Errorf("%w: %s: this engine reads no OCI archives: save the image as docker-archive, or use a newer engine", environment.ErrBadImage, file)
	}
	here := func() (Image, error) { return r.image(ctx, name) }
	if im, err := here(); err == nil || !errors.Is(err, ErrAbsent) {
		return im, err
	}
	return r.once(ctx, job{what: name, limit: loadTime, here: here, work: func(ctx context.Context) error {
		f, err := os.Open(file)
		if err != nil {
			return lostArchive(file, err)
		}
		if shared, failed := r.Share(ctx, file, name); shared || failed != nil {
			return errors.Join(failed, f.Close())
		}
		defer f.Close()
		names, err := r.Load(ctx, f)
		if err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
		if len(names) != 1 {
			return fmt.Errorf("%w: %s holds %d images, one is needed", environment.ErrBadImage, file, len(names))
		}
		return r.Tag(ctx, names[0], name)
	}})
}

// job is an image that is not there yet.
type job struct {
	what  string
	limit time.Duration
	here  func() (Image, error)
	fresh bool // do the work although the image is there
	work  func(context.Context) error
}

// once does a job unless another process has done it meanwhile. Only one process
// of this user on this machine, and one caller in it, works on it at a time.
func (r *remote) once(ctx context.Context, j job) (Image, error) {
	unlock, err := lock(ctx, short(r.address, j.what))
	if err != nil {
		return Image{}, fmt.Errorf("wait for image %q: %w", j.what, err)
	}
	defer unlock()
	done, _ := r.tried(j.what)
	if !j.fresh || done {
		if im, missing := j.here(); !errors.Is(missing, ErrAbsent) {
			return im, missing
		}
	}
	limited, cancel := context.WithTimeout(ctx, j.limit)
	defer cancel()
	err = j.work(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("not done after %v: %w", j.limit, err)
	}
	if err != nil {
		return Image{}, err
	}
	r.record(j.what, nil)
	return j.here()
}

// short is a name made of texts.
func short(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d %s\n", len(t), t)
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}
