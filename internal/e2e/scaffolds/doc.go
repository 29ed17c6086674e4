// Package scaffolds tests agents that are separate programs. The real
// programs, from their registries, are run by the built berth in the
// environment `local`, in Docker and in rootless Podman, without a network and
// with a scripted model. `make test` runs three of them; `make test-scaffolds`
// runs all.
package scaffolds
