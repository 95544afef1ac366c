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
	MemLimit    string             `json:"mem_limit"`
	PidsLimit   int                `json:"pids_limit"`
	Build       struct {
		Target string `json:"target"`
	} `json:"build"`
	Logging *struct {
		Options map[string]string `json:"options"`
	} `json:"logging"`
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
		if s.HealthCheck == nil {
			t.Errorf("%s has no health check", name)
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
	if want := len(names) + 3; len(services) != want {
		t.Errorf("%d containers instead of %d: %v", len(services), want, services)
	}
}

func TestNothingIsPrivileged(t *testing.T) {
	for name, s := range compose(t, "demo,gateway,gpu,cli") {
		if s.Privileged || len(s.CapAdd) > 0 || s.User != "" {
			t.Errorf("%s has rights that it does not need: %+v", name, s)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is published on %q", name, p.HostIP)
			}
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s keeps rights: %v, %v", name, s.CapDrop, s.SecurityOpt)
		}
		open := slices.ContainsFunc(s.SecurityOpt, func(o string) bool { return strings.HasSuffix(o, "unconfined") })
		if runs := slices.Contains(runners, name); open != runs || (s.Image == "rondo-runner:local") != runs {
			t.Errorf("%s: filters open: %v, image %s", name, open, s.Image)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" {
			t.Errorf("the log of %s has no bound", name)
		}
		if name != "vllm" && (s.MemLimit == "" || s.PidsLimit == 0) {
			t.Errorf("%s has no limits: memory %q, processes %d", name, s.MemLimit, s.PidsLimit)
		}
	}
}

// TestImagesAreBuiltOnce: each of our images is built for one service of those that start together.
func TestImagesAreBuiltOnce(t *testing.T) {
	for profiles, want := range map[string]int{"demo,gateway": 2, "cli": 3} { // the command line builds what it needs alone
		built := 0
		for name, s := range compose(t, profiles) {
			if s.Build.Target != "" {
				built++
			}
			if strings.HasSuffix(s.Image, ":local") && s.Build.Target != "" && (s.Image == "rondo:local") != (s.Build.Target == "rondo") {
				t.Errorf("%s: %s is built as %s", name, s.Image, s.Build.Target)
			}
		}
		if built != want {
			t.Errorf("with %s %d images are built, want %d", profiles, built, want)
		}
	}
}

func TestServicesWaitForLogAndStore(t *testing.T) {
	for name, s := range compose(t, "demo,gateway,gpu,cli") {
		if !strings.HasSuffix(s.Image, ":local") { // of another project
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

// TestSettingsAreExplained: what compose.yaml reads, .env.example explains with the same default, and the other way round.
func TestSettingsAreExplained(t *testing.T) {
	used, explained := names(t, "../compose.yaml", `\$\{([A-Z_0-9]+:-[^}]*)\}`), names(t, "../.env.example", `(?m)^([A-Z_0-9]+=.*)$`)
	for i := range used {
		used[i] = strings.Replace(used[i], ":-", "=", 1)
	}
	used = slices.DeleteFunc(used, func(setting string) bool { return setting == "RONDO_GATEWAY_KEY=" }) // the example has one to change
	explained = slices.DeleteFunc(explained, func(setting string) bool { return strings.HasPrefix(setting, "RONDO_GATEWAY_KEY=") })
	if !slices.Equal(used, explained) {
		t.Errorf("compose.yaml uses\n%v\n.env.example has\n%v", used, explained)
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
