package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/client/pkg/versions"
	"google.golang.org/protobuf/encoding/protowire"

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
	switch v := d.api.ClientVersion(); {
	case w.BuildKit && versions.LessThan(v, buildKitAPI):
		return "It needs BuildKit, which Docker has since version 18.09: use a newer Docker, or environment podman."
	case w.HereDocs && versions.LessThan(v, hereDocsAPI):
		return "It has here-documents (<<EOF), which Docker reads since version 23: use a newer Docker, or environment podman."
	}
	return ""
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

// Numbers of fields in BuildKit's StatusResponse and what is in it.
const (
	statusVertex, statusLog = 1, 3
	vertexName, vertexBegan = 3, 5
	logText                 = 4
)

// progress returns a function that passes on what BuildKit says of its work: the
// name of each step that begins, and what its commands print.
func progress(log func(string)) func(json.RawMessage) {
	said := map[string]bool{}
	return func(aux json.RawMessage) {
		var status []byte
		if json.Unmarshal(aux, &status) != nil {
			return // another message, such as the ID of the image
		}
		each(status, func(field protowire.Number, value []byte) {
			name, began := "", false
			each(value, func(part protowire.Number, text []byte) {
				switch {
				case field == statusVertex && part == vertexName:
					name = string(text)
				case field == statusVertex && part == vertexBegan:
					began = true
				case field == statusLog && part == logText:
					for line := range strings.Lines(string(text)) {
						log(strings.TrimRight(line, "\r\n "))
					}
				}
			})
			if began && !said[name] {
				said[name] = true
				log(name)
			}
		})
	}
}

// each calls f for each field of a message that has a length: texts and messages.
func each(message []byte, f func(field protowire.Number, value []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if kind == protowire.BytesType {
			value, length := protowire.ConsumeBytes(message)
			if length < 0 {
				return
			}
			f(field, value)
		}
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return
		}
		message = message[n:]
	}
}
