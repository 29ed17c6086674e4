package engine

import (
	"os"
	"strconv"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
)

// The labels of everything that we create. Nothing without labelUser is ever
// removed.
const (
	labelUser    = "dev.berth.user" // numeric id on the host of who made it
	labelOwner   = "dev.berth.owner"
	labelTrial   = "dev.berth.trial"
	labelAttempt = "dev.berth.attempt"
	labelLease   = "dev.berth.lease" // time without a core after which it ends
	labelPart    = "dev.berth.part"  // name of the main container that a sidecar or volume belongs to
	labelBuild   = "dev.berth.build" // digest of the build context
)

func mine() map[string]string { return map[string]string{labelUser: strconv.Itoa(os.Getuid())} }

// labels returns the labels of a sandbox. They include the facts of its image,
// because an image committed from it has sandboxd as its entrypoint.
func labels(l environment.Labels, lease time.Duration) map[string]string {
	all := mine()
	all[labelOwner], all[labelTrial], all[labelAttempt] = l.Owner, l.Trial, strconv.Itoa(l.Attempt)
	all[labelLease] = lease.String()
	return all
}

// factsOf is what an image says about itself.
func factsOf(im Image) environment.ImageFacts {
	f := im.ImageFacts
	f.Digest = im.ID
	return f
}
