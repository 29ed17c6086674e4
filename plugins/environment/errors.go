package environment

import (
	"github.com/berth-eval/berth/plugins/fault"
)

// The errors of environments. The core sees them as the same errors: errors.Is
// works across the wire, and the plugin's own text is kept.
var (
	ErrNoCapacity  = fault.ErrNoCapacity  // retry later
	ErrBadImage    = fault.ErrBadImage    // does not exist or cannot be read; never retry
	ErrBuildFailed = fault.ErrBuildFailed // the Dockerfile is at fault; never retry
	ErrRefused     = fault.ErrRefused     // Check says why; never retry
	ErrUnsupported = fault.ErrUnsupported // a capability that was not announced
	ErrNoSandbox   = fault.ErrNoSandbox   // the id is unknown or gone
)
