package conform_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/conform"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/conformance"
)

// brokenBoxes is broken for environments.
var brokenBoxes = []struct {
	plugin, clause string
	says           string // in what failed
	root           bool   // it is broken for root alone
}{
	{plugin: "initiated", clause: "create makes a sandbox in which sandboxd connects", says: "must be PID 1"},
	{plugin: "namesake", clause: "two sandboxes have two ids"},
	{plugin: "clinging", clause: "destroy ends everything inside"},
	{plugin: "pedantic", clause: "destroy twice, and of an unknown id, is not an error"},
	{plugin: "polite", clause: "destroy does not wait for a command"},
	{plugin: "negative", clause: "destroy ends everything inside", says: "destroy reports"},
	{plugin: "forgetful", clause: "list finds sandboxes by owner, until they are destroyed"},
	{plugin: "stubborn", clause: "a create that is canceled leaves nothing"},
	{plugin: "resentful-box", clause: "a create that fails leaves nothing, and the next one works"},
	{plugin: "narrow", clause: "32 sandboxes can be created at the same time"},
	{plugin: "phoenix", clause: "a sandbox ends when its core does", says: "started again"},
	{plugin: "undecided-box", clause: "check starts nothing, and gives the same answer twice"},
	{plugin: "lenient", clause: "what check refuses create refuses, too"},

	{plugin: "faceless", clause: "the Dockerfile of a task is built and run"},

	{plugin: "vintage", clause: "PID 1 is sandboxd, from the control folder", says: "is not the program"},
	{plugin: "roaming", clause: "the working folder exists and can be written"},
	{plugin: "stuffy", clause: "temporary folders are open to everybody"},
	{plugin: "deviceless", clause: "devices that every program expects are there"},
	{plugin: "leaky", clause: "nothing of the host's environment is inside"},
	{plugin: "sociable", clause: "a user of the spec can run commands"},
	{plugin: "trustful", clause: "a mount of the spec is there and cannot be written"},
	{plugin: "communal", clause: "two sandboxes share nothing"},
	{plugin: "anonymous", clause: "the sandbox says which image it is made of"},

	{plugin: "handcuffed", clause: "a timeout kills the whole tree"},
	{plugin: "stingy", clause: "concurrent commands do not mix"},
	{plugin: "deviceless", clause: "a terminal behaves like a terminal"},
	{plugin: "antique", clause: "an uploaded folder comes back unchanged"},
	{plugin: "cramped", clause: "50 MiB can be sent in and read back"},

	{plugin: "careless", clause: "nothing under /berth can be changed"},
	{plugin: "tunable", clause: "the settings of the kernel cannot be changed", root: true},
	{plugin: "mighty", clause: "root inside gets the capabilities of a container's root and no others"},
	{plugin: "transparent", clause: "the host's processes cannot be seen"},
	{plugin: "open", clause: "the host's files cannot be seen"},
	{plugin: "bare", clause: "no disk of the host can be opened"},
	{plugin: "online", clause: "without network there is only lo"},
	{plugin: "online", clause: "the host's loopback is not the sandbox's"},

	{plugin: "handcuffed", clause: "freeze stops everything, and thaw lets it continue"},
	{plugin: "handcuffed", clause: "quiesce kills everything, and commands work afterwards"},
	{plugin: "rigid", clause: "a folder can be replaced, whatever the agent put there"},
	{plugin: "serverless", clause: "a port inside reaches the core"},
	{plugin: "handcuffed", clause: "services are told apart from processes of the agent"},

	{plugin: "speechless", clause: "granted has an answer for each limit of the spec"},
	{plugin: "boastful-box", clause: "a limit of storage that is enforced holds"},
	{plugin: "boastful-box", clause: "a limit of processes that is enforced holds"},
	{plugin: "boastful-box", clause: "a limit of memory that is enforced holds"},

	{plugin: "solitary", clause: "without the capability, sidecars and volumes are refused"},
	{plugin: "loose", clause: "containers of a sandbox reach each other by name, and nothing else"},
	{plugin: "loose", clause: "containers have their own files and processes, and share volumes"},
	{plugin: "loose", clause: "destroy ends the sidecars, too"},
	{plugin: "loose", clause: "a create whose sidecar fails leaves nothing"},

	{plugin: "blurred", clause: "images are prepared, and the error for a missing image names it"},
	{plugin: "sweeping", clause: "kept images are listed, and no other image is removed"},
	{plugin: "hoarding", clause: "at the end nothing is left"},
	{plugin: "littering-box", clause: "no process of the plugin is left when it has ended"},
}

// TestTheKitFindsBrokenEnvironments shows that each clause can fail. Many of
// these plugins only wait.
func TestTheKitFindsBrokenEnvironments(t *testing.T) {
	t.Parallel()
	testlevel.Long(t, "test-kits")
	bwrap(t)
	for _, tt := range brokenBoxes {
		t.Run(tt.plugin+": "+tt.clause, func(t *testing.T) {
			t.Parallel()
			if tt.root && os.Getuid() != 0 {
				t.Skip("root in a sandbox of an ordinary user may not do it, whatever the plugin lets through")
			}
			results, err := try(t, tt.plugin, conform.Options{Only: tt.clause})
			i := slices.IndexFunc(results, func(r conform.Result) bool { return r.Clause == tt.clause && r.Status == conformance.Fail })
			if i < 0 || !strings.Contains(strings.Join(results[i].Detail, "\n"), tt.says) {
				t.Errorf("results are %+v, error %v; want that clause to fail with %q", results, err, tt.says)
			}
		})
	}
}

// Without a sandbox, all that follows would fail for the same reason, each after the
// time that sandboxd has to connect.
func TestWithoutASandboxNothingElseIsTried(t *testing.T) {
	t.Parallel()
	testlevel.Long(t, "test-kits")
	bwrap(t)
	results, err := try(t, "hollow", conform.Options{})
	if err != nil {
		t.Fatal(err)
	}
	needed := slices.IndexFunc(results, func(r conform.Result) bool {
		return r.Clause == "create makes a sandbox in which sandboxd connects" && r.Status == conformance.Fail
	})
	if needed < 0 {
		t.Fatalf("results are %+v", results)
	}
	for _, says := range []string{"no /berth/sandboxd connected", "were not tried"} {
		if detail := strings.Join(results[needed].Detail, "\n"); !strings.Contains(detail, says) {
			t.Errorf("no %q in %s", says, detail)
		}
	}
	for _, r := range results[needed+1:] {
		if r.Clause != "no process of the plugin is left when it has ended" {
			t.Errorf("%q was tried", r.Clause)
		}
	}
}
