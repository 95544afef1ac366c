package helm

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/composefile"
)

// TestPodsAreConfined: an ordinary user without capabilities, token and writable root, within
// limits. Only what makes sandboxes has filters open, as in compose.yaml.
func TestPodsAreConfined(t *testing.T) {
	compose := composefile.Load(t, profiles)
	yes := func(b *bool) bool { return b != nil && *b }
	for name, d := range deployments(render(t, "everything")) {
		p := d.Spec.Template.Spec
		c := p.Containers[0]
		if yes(p.AutomountServiceAccountToken) || p.AutomountServiceAccountToken == nil || p.HostNetwork ||
			p.HostPID || p.HostIPC {
			t.Errorf("%s has a token or the host's namespaces: %+v", name, p)
		}
		if !yes(p.SecurityContext.RunAsNonRoot) || p.SecurityContext.RunAsUser != 10001 {
			t.Errorf("%s runs as %+v", name, p.SecurityContext)
		}
		s := c.SecurityContext
		if s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			!yes(s.ReadOnlyRootFilesystem) ||
			!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s keeps rights: %+v", name, s)
		}
		if c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" {
			t.Errorf("%s has no limits: %+v", name, c.Resources)
		}
		for _, v := range p.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.SizeLimit == "" {
				t.Errorf("%s: the volume %s has no limit", name, v.Name)
			}
		}
		runner := slices.Contains(compose[c.Name].SecurityOpt, "seccomp=unconfined")
		if open := p.SecurityContext.SeccompProfile.Type == "Unconfined"; open != runner ||
			(s.AppArmorProfile.Type == "Unconfined") != runner || p.ShareProcessNamespace != runner {
			t.Errorf("%s: filters are open: %v", name, open)
		}
		// An open view of /proc takes a user namespace of the pod's own.
		if unmasked := s.ProcMount == "Unmasked"; unmasked != (runner && p.RuntimeClassName == "") ||
			unmasked && (p.HostUsers == nil || *p.HostUsers) {
			t.Errorf("%s: /proc is %s with %v", name, s.ProcMount, p.HostUsers)
		}
	}
}

// TestNothingRenderedIsSecret: the chart makes no Secret, and no variable has one as its value.
func TestNothingRenderedIsSecret(t *testing.T) {
	looks := regexp.MustCompile(`-----BEGIN|\bS[UAO][A-Z2-7]{56}\b|\bAKIA[A-Z0-9]{16}\b|://[^/\s"]*:[^/\s"]*@`)
	named := regexp.MustCompile(`PASSWORD|SECRET|ACCESS_KEY|TOKEN|_KEY\b|API_KEY`)
	for _, values := range []string{"plain", "everything", "external"} {
		for _, o := range render(t, values) {
			if found := looks.Find(o.raw); found != nil || o.Kind == "Secret" {
				t.Errorf("%s: %s %s holds %.40s", values, o.Kind, o.Metadata.Name, found)
			}
			for _, c := range o.Spec.Template.Spec.Containers {
				for _, e := range c.Env {
					if named.MatchString(e.Name) && !strings.HasSuffix(e.Name, "_FILE") &&
						(e.Value != "" || e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil) {
						t.Errorf("%s: %s is told %s=%s", values, o.Metadata.Name, e.Name, e.Value)
					}
				}
			}
		}
	}
}

// secretsOf are what the script makes of a folder of keys: by name, the decoded data.
func secretsOf(t *testing.T, folder string) map[string]map[string]string {
	t.Helper()
	out, err := exec.Command(root+"/deploy/helm/secrets", folder, release).Output()
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]map[string]string{}
	decoder := yaml.NewDecoder(strings.NewReader(string(out)), yaml.Strict())
	for {
		var s struct {
			APIVersion string `yaml:"apiVersion"`
			Kind, Type string
			Metadata   struct{ Name string }
			Data       map[string]string
		}
		if err := decoder.Decode(&s); err != nil {
			break
		}
		if s.Kind != "Secret" || s.APIVersion != "v1" || s.Type != "Opaque" {
			t.Errorf("%+v", s)
		}
		for key, text := range s.Data {
			data, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			s.Data[key] = string(data)
		}
		secrets[s.Metadata.Name] = s.Data
	}
	return secrets
}

// TestKeysReachTheirPods: the script makes the Secrets that pods mount, with the files that
// they read. Each pod has those of its own user alone, and the authority's own keys and those
// of outsiders are in none.
func TestKeysReachTheirPods(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "auth")
	a := authority(t, keys)
	if _, err := a.Ensure(auth.User{Name: "torch", Outsider: &topology.Outsider{Name: "torch",
		Role: topology.RoleTrainer, Run: "r", Feed: "f"}}); err != nil {
		t.Fatal(err)
	}
	secrets := secretsOf(t, keys)
	if len(secrets) != len(auth.Everybody())+1 {
		t.Errorf("%d Secrets", len(secrets))
	}
	for secret, file := range map[string]string{"auth.conf": "nats/auth.conf", "tls.crt": "tls/server.crt",
		"tls.key": "tls/server.key"} {
		if want, err := os.ReadFile(filepath.Join(keys, file)); err != nil ||
			secrets["rondo-nats"][secret] != string(want) || len(want) == 0 {
			t.Errorf("the servers read another %s: %v", secret, err)
		}
	}
	for name, d := range deployments(render(t, "plain")) {
		p := d.Spec.Template.Spec
		user := p.Containers[0].Name
		i := slices.IndexFunc(p.Volumes, func(v volume) bool { return v.Projected != nil })
		if i < 0 || len(p.Volumes[i].Projected.Sources) != 1 ||
			p.Volumes[i].Projected.Sources[0].Secret.Name != "rondo-keys-"+user {
			t.Errorf("%s has the keys %+v", name, p.Volumes)
			continue
		}
		secret := secrets["rondo-keys-"+user]
		creds, err := os.ReadFile(a.Creds(user))
		if err != nil || secret["nats.creds"] != string(creds) || secret["s3.secret"] != user+" s3.secret" {
			t.Errorf("%s has the keys of somebody else: %v", name, err)
		}
		for variable, value := range p.Containers[0].variables() {
			if file, ok := strings.CutPrefix(value, "/keys/"); ok && secret[file] == "" {
				t.Errorf("%s: %s names %s, which its Secret has not", name, variable, value)
			}
		}
	}
	seeds, err := filepath.Glob(filepath.Join(keys, "keys", "*"))
	if err != nil || len(seeds) < 4 {
		t.Fatalf("the authority's keys %v: %v", seeds, err)
	}
	for _, seed := range seeds {
		text, err := os.ReadFile(seed)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range secrets {
			for key, value := range data {
				if strings.Contains(value, strings.TrimSpace(string(text))) {
					t.Errorf("%s holds %s in %s", name, filepath.Base(seed), key)
				}
			}
		}
	}
	if out, err := exec.Command(root+"/deploy/helm/secrets", t.TempDir(), release).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "rondo auth init") {
		t.Errorf("a folder without keys: %v, %s", err, out)
	}
}
