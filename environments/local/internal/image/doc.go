// Package image applies a Dockerfile that runs nothing to the host's own
// programs as the base: it says what the image says about itself, and packs
// the files that it copies.
//
// It only reads the build folder, and never through a link that leads out of
// it. It must not know sandboxes. What cannot be applied is refused by line.
package image
