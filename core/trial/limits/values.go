package limits

import "time"

// Sizes. Bytes, unless the name says otherwise.
const (
	ArtifactBytes   = 4 << 30  // of file contents in one collection
	WorkBytes       = 4 << 30  // of what mode image copies
	ArtifactEntries = 100_000  // files and folders in one collection
	ArtifactFills   = 16 << 20 // of artifacts that may be the cause of a full disk; a disk without room for so little was full before
	ArtifactDropped = 50       // names of left out entries that the manifest lists
	StepBytes       = 8 << 20  // of one step as JSON; what is longer is cut
	StepText        = 1 << 20  // of one text in a step that had to be cut
	Steps           = 100_000  // of one session
	StepsBytes      = 1 << 30  // of all steps of one session
	LogLine         = 64 << 10 // of one line of a plugin's log
	LogBytes        = 64 << 20 // of the log of an attempt
	LogsBytes       = 1 << 30  // of the logs that an agent left in the sandbox
	MessageBytes    = 1 << 20  // of a message or an agent's last words
	VerdictBytes    = 4 << 20  // of a verdict's texts together
	Scores          = 1000     // named scores of one verdict
	Findings        = 1000     // of one attempt; the rest is counted
	FindingText     = 4096     // of one finding
	ErrorText       = 16 << 10 // of one error message in the record
	OutputTail      = 4096     // of the output of a task's own command, kept in an error
	ListedProcesses = 20       // in one finding
	ListedFiles     = 10       // in one finding
	HashedTests     = 1 << 30  // of the verifier's files, looked at again after it
)

// Times, when neither the task nor the experiment gives one.
const (
	Check      = 30 * time.Second
	Prepare    = 30 * time.Minute       // pull or build of an image
	Create     = 10 * time.Minute       // start of a sandbox, where the task does not say
	Connect    = 60 * time.Second       // until the first message of sandboxd
	Watch      = 200 * time.Millisecond // between two checks of whether it can still come
	Service    = 60 * time.Second
	Entrypoint = 60 * time.Second // an entrypoint of an image, before the agent starts anyway
	HeadStart  = 2 * time.Second  // for programs that were started to listen, where nothing tells when they are ready
	Setup      = 10 * time.Minute // the task's own commands before a stage
	Open       = 6 * time.Minute  // of an agent's session
	Turn       = 24 * time.Hour   // an agent without a deadline still has one
	Hook       = 60 * time.Second
	Judge      = 30 * time.Minute
	User       = 15 * time.Minute
	Control    = 30 * time.Second // one call to sandboxd
	Collect    = 15 * time.Minute
	Verify     = 60 * time.Minute
	Close      = 60 * time.Second // of an agent's session
	Destroy    = 2 * time.Minute
	Farewell   = 2 * time.Second  // for a turn to end by itself after its access is cut, before it is cancelled
	Return     = 10 * time.Second // for a plugin's call to return after it was cancelled
	Lease      = 60 * time.Second
)
