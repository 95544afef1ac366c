package deploy_test

import (
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/composefile"
	"github.com/rondo-rl/rondo/tests/program"
)

// runners are the services that make sandboxes.
var runners = []string{topology.ToolRunner, topology.Scorer}

func TestOneContainerForEachService(t *testing.T) {
	services := composefile.Load(t, "demo,gateway")
	rondo := program.Binary(t)
	names := []string{"policy", "trainer", "gateway", "dashboard"}
	for _, s := range topology.Services {
		names = append(names, s.Name)
	}
	for _, name := range names {
		s, ok := services[name]
		if !ok {
			t.Errorf("%s has no container", name)
			continue
		}
		if s.HealthCheck == nil || !strings.HasSuffix(s.HealthCheck.Test[len(s.HealthCheck.Test)-1], "/readyz") {
			t.Errorf("%s is not asked whether log and store answer: %+v", name, s.HealthCheck)
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
	if want := len(names) + len([]string{"nats", "s3", "keys", "access", "demo"}); len(services) != want {
		t.Errorf("%d containers instead of %d: %v", len(services), want, services)
	}
}

func TestNothingIsPrivileged(t *testing.T) {
	for name, s := range composefile.Load(t, "demo,gateway,gpu,cli,observability") {
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
	// the command line builds what it needs alone
	for profiles, want := range map[string]int{"demo,gateway": 2, "cli": 3} {
		built := 0
		for name, s := range composefile.Load(t, profiles) {
			if s.Build.Target != "" {
				built++
			}
			if strings.HasSuffix(s.Image, ":local") && s.Build.Target != "" &&
				(s.Image == "rondo:local") != (s.Build.Target == "rondo") {
				t.Errorf("%s: %s is built as %s", name, s.Image, s.Build.Target)
			}
		}
		if built != want {
			t.Errorf("with %s %d images are built, want %d", profiles, built, want)
		}
	}
}

// makers make keys, one after the other: for log and store before these start, and rights in
// the store when it is there.
var makers = []string{"keys", "access"}

func TestServicesWaitForLogAndStore(t *testing.T) {
	services := composefile.Load(t, "demo,gateway,gpu,cli,observability")
	// With a query, such as js-enabled-only, a NATS server says nothing of
	// streams that refuse writes.
	if check := services["nats"].HealthCheck; check == nil ||
		!strings.HasSuffix(check.Test[len(check.Test)-1], ":8222/healthz") {
		t.Errorf("the log is not asked how its streams are: %+v", check)
	}
	waits := func(name, before, until string) {
		t.Helper()
		if got := services[name].DependsOn[before].Condition; got != until {
			t.Errorf("%s waits until %s is %q, want %q", name, before, got, until)
		}
	}
	waits("nats", "keys", "service_completed_successfully")
	waits("s3", "keys", "service_completed_successfully")
	waits("access", "s3", "service_healthy")
	for name, s := range services {
		if !strings.HasSuffix(s.Image, ":local") { // of another project
			if s.HealthCheck == nil {
				t.Errorf("%s has no health check", name)
			}
			continue
		}
		if slices.Contains(makers, name) {
			continue
		}
		waits(name, "nats", "service_healthy")
		waits(name, "access", "service_completed_successfully")
		if s.Environment["RONDO_NATS"] == nil || s.Environment["RONDO_STORE"] == nil ||
			s.Environment["RONDO_NATS_MONITOR"] == nil {
			t.Errorf("%s does not know the log and the store: %v", name, s.Environment)
		}
	}
}

// TestEachContainerHasItsOwnKeys: who makes keys sees all of them, in folders that the image has
// and so belong to its user; everybody else sees those of one user, and nobody a password.
func TestEachContainerHasItsOwnKeys(t *testing.T) {
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	services := composefile.Load(t, "demo,gateway,gpu,cli,observability")
	folders := map[string]string{} // by volume
	for _, maker := range makers {
		for _, v := range services[maker].Volumes {
			if known, ok := folders[v.Source]; ok && known != v.Target {
				t.Errorf("%s is mounted at %s and %s", v.Source, known, v.Target)
			}
			folders[v.Source] = v.Target
			last := v.Target[strings.LastIndex(v.Target, "/")+1:]
			if !regexp.MustCompile(`[ /]` + last + `[ ;/\\]`).Match(dockerfile) {
				t.Errorf("the image has no %s", v.Target)
			}
		}
	}
	for _, name := range auth.Everybody() {
		if folders[name+"-keys"] != "/auth/users/"+name {
			t.Errorf("the keys of %s lie in %q", name, folders[name+"-keys"])
		}
	}
	for name, s := range services {
		if slices.Contains(makers, name) {
			continue
		}
		want := []string{name + "-keys:/keys"}
		switch name {
		case "demo", "rondo":
			want = []string{"admin-keys:/keys"}
		case "nats":
			want = []string{"nats-keys:/auth/nats", "tls-keys:/auth/tls"}
		case "vllm", "prometheus", "grafana":
			want = nil
		}
		var got []string
		for _, v := range s.Volumes {
			if _, ok := folders[v.Source]; !ok {
				continue
			}
			if got = append(got, v.Source+":"+v.Target); !v.ReadOnly {
				t.Errorf("%s may write %s", name, v.Target)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %v, want %v", name, got, want)
		}
		for variable, value := range s.Environment {
			secret := regexp.MustCompile(`PASSWORD|SECRET|ACCESS_KEY`).MatchString(variable) &&
				!strings.HasSuffix(variable, "_FILE")
			if secret || value != nil && strings.Contains(*value, "@") {
				t.Errorf("%s is told a secret by %s", name, variable)
			}
		}
	}
}

// TestSettingsAreExplained: what compose.yaml reads, .env.example explains with the same default,
// and the other way round.
func TestSettingsAreExplained(t *testing.T) {
	used, explained := names(t, "../compose.yaml", `\$\{([A-Z_0-9]+:-[^}]*)\}`),
		names(t, "../.env.example", `(?m)^([A-Z_0-9]+=.*)$`)
	for i := range used {
		used[i] = strings.Replace(used[i], ":-", "=", 1)
	}
	// the example has one to change
	used = slices.DeleteFunc(used, func(setting string) bool { return setting == "RONDO_GATEWAY_KEY=" })
	explained = slices.DeleteFunc(explained, func(setting string) bool {
		return strings.HasPrefix(setting,
			"RONDO_GATEWAY_KEY=")
	})
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

// cluster is the file that puts the log on three servers.
const cluster = "compose.cluster.yaml"

// TestClusterOfThree: the file for three servers changes the log, and where everybody
// finds it, and nothing else.
func TestClusterOfThree(t *testing.T) {
	const profiles = "demo,gateway,gpu,cli,observability"
	one, three := composefile.Load(t, profiles), composefile.Load(t, profiles, cluster)
	servers := []string{"nats", "nats-2", "nats-3"}
	if len(three) != len(one)+2 {
		t.Errorf("%d containers in place of %d", len(three), len(one))
	}
	var urls, monitors []string
	volumes, ports := map[string]bool{"log": true}, map[string]bool{} // a server that has a log must not join
	for _, name := range servers {
		s := three[name]
		urls, monitors = append(urls, "nats://"+name+":4222"), append(monitors, "http://"+name+":8222")
		if want := []string{"--config", "/nats-cluster.conf", "--name", name}; !slices.Equal(s.Command, want) {
			t.Errorf("%s runs %v", name, s.Command)
		}
		if s.Image != one["nats"].Image || s.HealthCheck == nil || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			s.MemLimit != one["nats"].MemLimit || !s.DependsOn["keys"].Restart {
			t.Errorf("%s is another kind of server: %+v", name, s)
		}
		for _, v := range s.Volumes {
			if v.Target == "/data" {
				if volumes[v.Source] {
					t.Errorf("%s shares the volume %s", name, v.Source)
				}
				volumes[v.Source] = true
			}
		}
		if len(s.Ports) != 1 || s.Ports[0].HostIP != "127.0.0.1" || s.Ports[0].Target != 4222 ||
			ports[s.Ports[0].Published] {
			t.Errorf("%s is published as %+v", name, s.Ports)
			continue
		}
		ports[s.Ports[0].Published] = true
		if !slices.Contains(three["keys"].Command, name) {
			t.Errorf("the certificate does not name %s: %v", name, three["keys"].Command)
		}
	}
	if len(volumes) != 4 {
		t.Errorf("the servers' volumes are %v", volumes)
	}
	for name, s := range three {
		if before := one[name].Environment["RONDO_NATS"]; before != nil {
			if got := *s.Environment["RONDO_NATS"]; got != strings.Join(urls, ",") {
				t.Errorf("%s finds the log at %s", name, got)
			}
			if got := *s.Environment["RONDO_NATS_MONITOR"]; got != strings.Join(monitors, ",") {
				t.Errorf("%s finds its monitoring ports at %s", name, got)
			}
			s.Environment["RONDO_NATS"], s.Environment["RONDO_NATS_MONITOR"] = before,
				one[name].Environment["RONDO_NATS_MONITOR"]
		}
		switch name {
		case "nats", "nats-2", "nats-3", "keys":
			continue
		case topology.Intake:
			if got := strings.Join(s.Command, " "); got != "service intake --replicas 3" {
				t.Errorf("the intake runs %s", got)
			}
			s.Command = one[name].Command
		}
		if !reflect.DeepEqual(s, one[name]) {
			t.Errorf("%s is %+v, and was %+v", name, s, one[name])
		}
	}
}
