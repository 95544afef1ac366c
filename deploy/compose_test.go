package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// service is what the tests read of a container in the loaded Compose file.
type service struct {
	Image       string             `json:"image"`
	Command     []string           `json:"command"`
	Environment map[string]*string `json:"environment"`
	Privileged  bool               `json:"privileged"`
	CapAdd      []string           `json:"cap_add"`
	CapDrop     []string           `json:"cap_drop"`
	SecurityOpt []string           `json:"security_opt"`
	User        string             `json:"user"`
	Build       struct {
		Target string `json:"target"`
	} `json:"build"`
	DependsOn map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
	HealthCheck *struct {
		Test []string `json:"test"`
	} `json:"healthcheck"`
	Volumes []struct {
		Type, Source, Target string
	} `json:"volumes"`
	Ports []struct {
		HostIP string `json:"host_ip"`
	} `json:"ports"`
}

// compose loads compose.yaml as Docker Compose would, with the settings of .env.example. What the loader remarks, as it
// does of variables without a value, fails the test.
func compose(t *testing.T, profiles string) map[string]service {
	t.Helper()
	if out, err := exec.Command("go", "list", "-C", "composeconfig", "-deps", ".").CombinedOutput(); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("the modules of composeconfig: %v\n%s", err, out)
		}
		t.Skipf("the modules of composeconfig are not to be had: %v\n%s", err, out)
	}
	command := exec.Command("go", "run", "-C", "composeconfig", ".", "-env-file", "../../.env.example", "-profile", profiles, "../../compose.yaml")
	// Settings of this machine must not stand in for missing ones.
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RONDO_") || strings.HasPrefix(v, "AWS_") })
	var remarks strings.Builder
	command.Stderr = &remarks
	out, err := command.Output()
	if err != nil || strings.Contains(remarks.String(), "level=") {
		t.Fatalf("compose.yaml: %v\n%s", err, remarks.String())
	}
	var project struct {
		Services map[string]service `json:"services"`
	}
	if err := json.Unmarshal(out, &project); err != nil {
		t.Fatal(err)
	}
	return project.Services
}

// runners are the services that make sandboxes.
var runners = []string{events.ToolRunner, events.Scorer}

func TestOneContainerForEachService(t *testing.T) {
	services := compose(t, "demo,gateway")
	rondo := filepath.Join(t.TempDir(), "rondo")
	if out, err := exec.Command("go", "build", "-o", rondo, "../cmd/rondo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names := []string{"policy", "trainer", "gateway"}
	for _, s := range events.Services {
		names = append(names, s.Name)
	}
	for _, name := range names {
		s, ok := services[name]
		if !ok {
			t.Errorf("%s has no container", name)
			continue
		}
		if len(s.Command) < 2 || s.Command[0] != "service" || s.Command[1] != name {
			t.Errorf("%s runs %v", name, s.Command)
			continue
		}
		// --help comes last: the flags before it are read first.
		if out, err := exec.Command(rondo, append(s.Command, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("%s: rondo %v: %v\n%s", name, s.Command, err, out)
		}
	}
	if want := len(names) + 2; len(services) != want {
		t.Errorf("%d containers instead of %d: %v", len(services), want, services)
	}
}

func TestNothingIsPrivileged(t *testing.T) {
	for name, s := range compose(t, "demo,gateway") {
		if s.Privileged || len(s.CapAdd) > 0 || s.User != "" {
			t.Errorf("%s has rights that it does not need: %+v", name, s)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is published on %q", name, p.HostIP)
			}
		}
		if s.Build.Target == "" {
			continue // of another project
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s keeps rights: %v, %v", name, s.CapDrop, s.SecurityOpt)
		}
		open := slices.ContainsFunc(s.SecurityOpt, func(o string) bool { return strings.HasSuffix(o, "unconfined") })
		if runs := slices.Contains(runners, name); open != runs || (s.Build.Target == "runner") != runs {
			t.Errorf("%s: filters open: %v, target %q", name, open, s.Build.Target)
		}
	}
}

func TestServicesWaitForLogAndStore(t *testing.T) {
	for name, s := range compose(t, "demo,gateway") {
		if s.Build.Target == "" {
			if s.HealthCheck == nil {
				t.Errorf("%s has no health check", name)
			}
			continue
		}
		for _, before := range []string{"nats", "s3"} {
			if s.DependsOn[before].Condition != "service_healthy" {
				t.Errorf("%s does not wait until %s is healthy", name, before)
			}
		}
		if s.Environment["RONDO_NATS"] == nil || s.Environment["RONDO_STORE"] == nil {
			t.Errorf("%s does not know the log and the store: %v", name, s.Environment)
		}
	}
}

// TestSettingsAreExplained: what compose.yaml reads, .env.example explains, and the other way round.
func TestSettingsAreExplained(t *testing.T) {
	used := names(t, "../compose.yaml", `\$\{([A-Z_]+)`)
	explained := names(t, "../.env.example", `(?m)^([A-Z_]+)=`)
	if !slices.Equal(used, explained) {
		t.Errorf("compose.yaml uses %v, .env.example has %v", used, explained)
	}
}

func names(t *testing.T, path, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}
