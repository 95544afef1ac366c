// Package composefile loads compose.yaml, and files over it, for tests, as Docker Compose would.
package composefile

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// Service is what tests read of a container.
type Service struct {
	Image           string             `json:"image"`
	Command         []string           `json:"command"`
	Environment     map[string]*string `json:"environment"`
	Privileged      bool               `json:"privileged"`
	CapAdd          []string           `json:"cap_add"`
	CapDrop         []string           `json:"cap_drop"`
	SecurityOpt     []string           `json:"security_opt"`
	User            string             `json:"user"`
	MemLimit        string             `json:"mem_limit"`
	PidsLimit       int                `json:"pids_limit"`
	StopGracePeriod string             `json:"stop_grace_period"`
	Build           struct {
		Target string `json:"target"`
	} `json:"build"`
	Logging *struct {
		Options map[string]string `json:"options"`
	} `json:"logging"`
	DependsOn map[string]struct {
		Condition string `json:"condition"`
		Restart   bool   `json:"restart"`
	} `json:"depends_on"`
	HealthCheck *struct {
		Test []string `json:"test"`
	} `json:"healthcheck"`
	Volumes []struct {
		Type, Source, Target string
		ReadOnly             bool `json:"read_only"`
	} `json:"volumes"`
	Ports []struct {
		HostIP    string `json:"host_ip"`
		Target    int    `json:"target"`
		Published string `json:"published"`
	} `json:"ports"`
}

// Load loads compose.yaml, and what other files of its folder change, with the settings of
// .env.example and some profiles, by commas. What the loader remarks, as it does of variables
// without a value, fails the test.
func Load(t testing.TB, profiles string, over ...string) map[string]Service {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	loader := filepath.Join(root, "deploy", "composeconfig")
	if out, err := exec.Command("go", "list", "-C", loader, "-deps", ".").CombinedOutput(); err != nil {
		program.Missing(t, "the modules of composeconfig: %v\n%s", err, out)
	}
	command := exec.Command("go", "run", "-C", loader, ".", "-env-file", "../../.env.example",
		"-profile", profiles, "../../compose.yaml")
	for _, file := range over {
		command.Args = append(command.Args, "../../"+file)
	}
	// Settings of this machine must not stand in for missing ones.
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RONDO_") ||
			strings.HasPrefix(v, "AWS_")
	})
	var remarks strings.Builder
	command.Stderr = &remarks
	out, err := command.Output()
	if err != nil || strings.Contains(remarks.String(), "level=") {
		t.Fatalf("compose.yaml: %v\n%s", err, remarks.String())
	}
	var project struct {
		Services map[string]Service `json:"services"`
	}
	if err := json.Unmarshal(out, &project); err != nil {
		t.Fatal(err)
	}
	return project.Services
}
