package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	control "github.com/moby/buildkit/api/services/control"
	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"
	"google.golang.org/protobuf/proto"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/environments/internal/engine"
)

// Versions of the API from which every daemon for Linux has BuildKit, and one
// that reads here-documents.
const (
	buildKitAPI = "1.39" // Docker 18.09
	hereDocsAPI = "1.42" // Docker 23
)

// CannotBuild says what the daemon's builders do not know.
func (d *docker) CannotBuild(w dockerfile.Wants) string {
	switch v := d.API.ClientVersion(); {
	case w.BuildKit && versions.LessThan(v, buildKitAPI):
		return "It needs BuildKit, which Docker has since version 18.09: use a newer Docker, or environment podman."
	case w.HereDocs && versions.LessThan(v, hereDocsAPI):
		return "It has here-documents (<<EOF), which Docker reads since version 23: use a newer Docker, or environment podman."
	}
	return ""
}

// Build makes an image with the daemon's classic builder, which every daemon
// has, and which pulls images by itself; with BuildKit if the Dockerfile needs it.
func (d *docker) Build(ctx context.Context, b engine.Build, log func(string)) error {
	builder := build.BuilderV1
	if b.Wants.BuildKit {
		builder = build.BuilderBuildKit
		if err := d.fetch(ctx, b.Wants.Images, log); err != nil {
			return err
		}
	}
	args := map[string]*string{}
	for name, value := range b.Args {
		args[name] = &value
	}
	r, err := d.API.ImageBuild(ctx, b.Context, client.ImageBuildOptions{
		Target: b.Target, BuildArgs: args, NetworkMode: b.Network,
		Tags: []string{b.Name}, Dockerfile: b.File, Labels: b.Labels, Remove: true, ForceRemove: true, Version: builder,
	})
	if err != nil {
		return err
	}
	defer dockerapi.Drain(r.Body)
	if err := engine.Messages(r.Body, log, progress(log)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// FindsLocal is false: Docker gives its own images names in the default
// registry.
func (d *docker) FindsLocal() bool { return false }

// Share is false: a daemon has one store.
func (d *docker) Share(context.Context, string, string) (bool, error) { return false, nil }

// LoadsOCI reports whether the daemon reads OCI archives, which it does since
// version 25.
func (d *docker) LoadsOCI() bool {
	return versions.GreaterThanOrEqualTo(d.API.ClientVersion(), "1.44")
}

// fetch gets the images that a build with BuildKit begins with: without a
// session, which would carry the client's credentials, BuildKit builds on images
// that are there.
func (d *docker) fetch(ctx context.Context, images []string, log func(string)) error {
	for _, name := range images {
		named, err := reference.ParseDockerRef(name)
		if err != nil {
			continue // the builder says it better
		}
		ref := named.String()
		if _, err = d.Inspect(ctx, ref); errors.Is(err, engine.ErrAbsent) {
			log("pull " + ref)
			if err = d.Pull(ctx, ref, log); errors.Is(err, engine.ErrNoImage) {
				err = fmt.Errorf("%w: pull image %q: %w", engine.ErrBuild, ref, err)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// progress returns a function that passes on what BuildKit says of its work: the
// name of each step that begins, and what its commands print.
func progress(log func(string)) func(json.RawMessage) {
	said := map[string]bool{}
	return func(aux json.RawMessage) {
		var text []byte
		var status control.StatusResponse
		if json.Unmarshal(aux, &text) != nil || proto.Unmarshal(text, &status) != nil {
			return // another message, such as the ID of the image
		}
		for _, v := range status.GetVertexes() {
			if name := v.GetName(); v.GetStarted() != nil && !said[name] {
				said[name] = true
				log(name)
			}
		}
		for _, l := range status.GetLogs() {
			for line := range strings.Lines(string(l.GetMsg())) {
				log(strings.TrimRight(line, "\r\n "))
			}
		}
	}
}
