// Package image applies a Dockerfile without RUN instructions to the host's own
// programs as the base image. It determines the image's settings and packs the
// files that the Dockerfile copies.
//
// It only reads the build folder, and never through a link that leads out of
// it. It must not know sandboxes. It refuses, with the line, what cannot be
// applied.
package image
