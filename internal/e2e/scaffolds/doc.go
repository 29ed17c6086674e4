// Package scaffolds tries agents that are programs of their own, the real ones
// from their registries, through the built program: in the environment `local`,
// in Docker and in rootless Podman, without a network, with a model that answers
// from a file. `make test` tries three of them; `make test-scaffolds` all.
package scaffolds
