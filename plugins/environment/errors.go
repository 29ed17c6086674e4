package environment

import (
	"github.com/berth-eval/berth/plugins/fault"
)

// What an environment fails with. Each survives the trip over the wire:
// errors.Is holds on the other side, with the plugin's own text around it.
var (
	ErrNoCapacity  = fault.ErrNoCapacity  // retry later
	ErrBadImage    = fault.ErrBadImage    // does not exist or cannot be read; never retry
	ErrBuildFailed = fault.ErrBuildFailed // the Dockerfile's own fault; never retry
	ErrRefused     = fault.ErrRefused     // Check says why; never retry
	ErrUnsupported = fault.ErrUnsupported // a capability that was not announced
	ErrNoSandbox   = fault.ErrNoSandbox   // the id is unknown or gone
)
