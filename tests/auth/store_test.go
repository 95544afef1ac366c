package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/s3"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// bucket is a server with users, and the URL of a bucket in it.
func bucket(t *testing.T, options ...string) (url string) {
	t.Helper()
	return "s3://rondo/plane?endpoint=" + storagetest.S3Dev(t, append(options, "-iam", t.TempDir())...)
}

// roomy lets a server hold policies for which a file's attributes have no room.
func roomy(t *testing.T) (options []string) { return []string{"-sidecar", t.TempDir()} }

// asRoot is the environment of who may do everything on the server.
func asRoot() []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+storagetest.AccessKey,
		"AWS_SECRET_ACCESS_KEY="+storagetest.SecretKey)
}

// authStore runs `rondo auth store`, and gives what it printed.
func authStore(t *testing.T, dir, url string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rondo, append([]string{"auth", "store", "--out", dir, "--store", url},
		args...)...)
	cmd.Env = asRoot()
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), storagetest.SecretKey) {
		t.Errorf("rondo auth store prints the server's secret: %s", out)
	}
	return string(out), err
}

// lockBucket is a bucket whose users have their keys.
func lockBucket(t *testing.T, dir string, options ...string) (url string) {
	t.Helper()
	url = bucket(t, options...)
	if out, err := authStore(t, dir, url); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return url
}

// storeEnv is a user's environment.
func storeEnv(t *testing.T, dir, user string) []string {
	t.Helper()
	path := filepath.Join(dir, "users", user, "s3.env")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	env := strings.Fields(string(text))
	for i, part := range []string{"s3.access", "s3.secret"} {
		file := filepath.Join(dir, "users", user, part)
		alone, err := os.ReadFile(file)
		if _, value, _ := strings.Cut(env[i], "="); err != nil || string(alone) != value+"\n" ||
			modeOf(t, file) != 0o600 || modeOf(t, path) != 0o600 {
			t.Errorf("%s: %v, or it can be read by others, or says something else than %s", file, err, path)
		}
	}
	return env
}

// openAs opens the bucket with the keys of a user, as a service does.
func openAs(t *testing.T, dir, url, user string) *s3.Store {
	t.Helper()
	env := storeEnv(t, dir, user)
	return openWith(t, url, strings.TrimPrefix(env[0], "AWS_ACCESS_KEY_ID="),
		strings.TrimPrefix(env[1], "AWS_SECRET_ACCESS_KEY="))
}

func openWith(t *testing.T, url, access, secret string) *s3.Store {
	t.Helper()
	c, err := s3.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c.AccessKey, c.SecretKey = access, secret
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open as %s: %v", access, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// place is a folder of the store, and the row of the table that it belongs to.
type place struct {
	prefix            string
	spec              topology.ObjectSpec
	run, feed, policy string
}

// places are all rows of the table with two runs, feeds and policies each,
// and a folder of nobody's.
func places() (all []place) {
	for _, spec := range topology.Objects {
		seen := map[string]bool{}
		for _, run := range []string{"r", "s"} {
			for _, feed := range []string{"f", "g"} {
				for _, policy := range []string{"p", "q"} {
					prefix := strings.NewReplacer("<run>", run, "<feed>", feed, "<policy>", policy).Replace(spec.Prefix)
					if prefix == "" {
						prefix = "elsewhere/"
					}
					if !seen[prefix] {
						all = append(all, place{prefix, spec, run, feed, policy})
					}
					seen[prefix] = true
				}
			}
		}
	}
	return all
}

// everything is the row of the whole store.
var everything = topology.Objects[len(topology.Objects)-1]

// may says what the table says: of services by their names, of outsiders by their roles
// and the names in the place.
func (p place) may(service string, o *topology.Outsider, verb string) bool {
	for _, row := range []topology.ObjectSpec{p.spec, everything} {
		named := func(names []string) bool {
			return slices.Contains(names, service) ||
				service != topology.Admin && slices.Contains(names, topology.Anybody)
		}
		role := func(roles []topology.Role) bool {
			return o != nil && slices.Contains(roles, o.Role) &&
				(!strings.Contains(row.Prefix, "<run>") || o.Run == p.run) &&
				(!strings.Contains(row.Prefix, "<feed>") || o.Feed == p.feed) &&
				(!strings.Contains(row.Prefix, "<policy>") || o.Policy == p.policy)
		}
		writes := named(row.Writes) || role(row.RoleWrites)
		if map[string]bool{"get": named(row.Reads) || role(row.RoleReads) ||
			writes, "put": writes, "delete": named(row.Deletes), "list": named(row.Lists)}[verb] {
			return true
		}
	}
	return false
}

// tries is what is done at each place.
var tries = map[string]func(t *testing.T, s *s3.Store, prefix, who string) error{
	"get": func(t *testing.T, s *s3.Store, prefix, _ string) error {
		data, err := s.Get(t.Context(), prefix+"seed")
		if err == nil && string(data) != prefix {
			err = fmt.Errorf("it holds %q", data)
		}
		return err
	},
	"put": func(t *testing.T, s *s3.Store, prefix, who string) error {
		return s.Put(t.Context(), prefix+"of-"+who, []byte("x"))
	},
	"delete": func(t *testing.T, s *s3.Store, prefix, _ string) error { return s.Delete(t.Context(), prefix+"gone") },
	"list": func(t *testing.T, s *s3.Store, prefix, _ string) error {
		for _, err := range s.List(t.Context(), prefix) {
			return err
		}
		return errors.New("the seed is not listed")
	},
}

// storeDifferences tries everything everywhere as a user, and lists what the server does otherwise
// than the table says of a service or outsider.
func storeDifferences(t *testing.T, s *s3.Store, service string, o *topology.Outsider) (wrong []string) {
	t.Helper()
	for _, p := range places() {
		for verb, try := range tries {
			err := try(t, s, p.prefix, service)
			if err != nil && !strings.Contains(err.Error(), "refuses the credentials") {
				t.Fatalf("%s %s: %v", verb, p.prefix, err)
			}
			if want := p.may(service, o, verb); want != (err == nil) {
				wrong = append(wrong, fmt.Sprintf("%s may %s %s: %v, want %v", service, verb,
					p.prefix, err == nil, want))
			}
		}
	}
	for _, prefix := range []string{"", "runs/", "weights/"} {
		if err := tries["list"](t, s, prefix, service); (err == nil) != (service == topology.Admin) {
			wrong = append(wrong, fmt.Sprintf("%s lists %q: %v", service, prefix, err))
		}
	}
	return wrong
}

// seed puts an object at each place.
func seed(t *testing.T, url string) {
	t.Helper()
	root := openWith(t, url, storagetest.AccessKey, storagetest.SecretKey)
	for _, p := range places() {
		if err := root.Put(t.Context(), p.prefix+"seed", []byte(p.prefix)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEverybodyAtEveryPrefix tries every user's keys on every place of the store.
func TestEverybodyAtEveryPrefix(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	outsiders := []topology.Outsider{
		{Name: "torch", Role: topology.RoleTrainer, Run: "r", Feed: "f", Policy: "p"},
		{Name: "swe", Role: topology.RoleHarness, Run: "r"},
		{Name: "vllm", Role: topology.RoleServer, Run: "r", Policy: "q"},
	}
	for _, o := range outsiders {
		args := []string{"auth", "user", o.Name, "--out", dir, "--role", string(o.Role), "--run", o.Run}
		for flag, value := range map[string]string{"--feed": o.Feed, "--policy": o.Policy} {
			if value != "" {
				args = append(args, flag, value)
			}
		}
		command(t, args...)
	}
	url := lockBucket(t, dir, roomy(t)...)
	seed(t, url)
	for _, name := range auth.Everybody() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range storeDifferences(t, openAs(t, dir, url, name), name, nil) {
				t.Error(wrong)
			}
		})
	}
	for _, o := range outsiders {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range storeDifferences(t, openAs(t, dir, url, o.Name), o.Name, &o) {
				t.Error(wrong)
			}
		})
	}
}

// TestOnePrefixTooMany gives users more than they have, and sees the matrix find it.
func TestOnePrefixTooMany(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	command(t, "auth", "user", "greedy", "--out", dir, "--service", topology.Generator,
		"--service", topology.TrainerFeeder)
	command(t, "auth", "user", "torch", "--out", dir, "--role", "trainer", "--run", "r", "--feed", "g", "--policy", "q")
	url := lockBucket(t, dir, roomy(t)...)
	seed(t, url)
	greedy := storeDifferences(t, openAs(t, dir, url, "greedy"), topology.Generator, nil)
	torch := storeDifferences(t, openAs(t, dir, url, "torch"),
		"torch", &topology.Outsider{Role: topology.RoleTrainer, Run: "r", Feed: "f", Policy: "q"})
	for what, wrong := range map[string][]string{"may put runs/s/batches/g/: true": greedy,
		"may get runs/r/batches/f/: true": greedy, "may get runs/r/batches/g/: true": torch,
		"may get runs/r/batches/f/: false": torch} {
		t.Run(what, func(t *testing.T) {
			if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, what) }) {
				t.Errorf("the matrix does not see that a user %s: %q", what, wrong)
			}
		})
	}
}

// TestStoreKeysChange: rotated keys, revoked users, and what others have put
// into the bucket's policy.
func TestStoreKeysChange(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	command(t, "auth", "user", "swe", "--out", dir, "--role", "harness", "--run", "r")
	url := lockBucket(t, dir, roomy(t)...)
	old := storeEnv(t, dir, "generator")
	gone := storeEnv(t, dir, "swe")
	if out, err := authStore(t, dir, url); err != nil || !slices.Equal(storeEnv(t, dir, "generator"), old) {
		t.Errorf("keys do not stay: %v %s", err, out)
	}
	for _, args := range [][]string{{"rotate", "generator"}, {"revoke", "swe"}} {
		if out := command(t, append([]string{"auth", "--out", dir}, args...)...); !strings.Contains(out,
			"rondo auth store") {
			t.Errorf("%q does not say what is left to do: %s", args, out)
		}
	}
	out, err := authStore(t, dir, url, "--json")
	if err != nil {
		t.Fatal(out)
	}
	var told struct {
		Users   []struct{ Name, Outcome string }
		Removed []string
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || !slices.Equal(told.Removed, []string{"swe"}) {
		t.Errorf("%v: %s", err, out)
	}
	for _, u := range told.Users {
		if (u.Outcome == string(auth.OutcomeMade)) != (u.Name == "generator") {
			t.Errorf("%s: %s", u.Name, u.Outcome)
		}
	}
	if fresh := storeEnv(t, dir, "generator"); fresh[0] != old[0] || fresh[1] == old[1] {
		t.Error("rotation left the secret as it was")
	}
	if err := openAs(t, dir, url, "generator").Put(t.Context(), "blobs/x", nil); err != nil {
		t.Error(err)
	}
	for _, env := range [][]string{old, gone} {
		c, err := s3.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		c.AccessKey, c.SecretKey = strings.TrimPrefix(env[0], "AWS_ACCESS_KEY_ID="),
			strings.TrimPrefix(env[1], "AWS_SECRET_ACCESS_KEY=")
		if _, err := s3.Open(t.Context(), c); err == nil {
			t.Errorf("%s opens the bucket with keys that were taken away", c.AccessKey)
		}
	}
}

// TestTwoPlanesInABucket: each has its statements in the one policy of the bucket, and neither
// reaches the other's objects.
func TestTwoPlanesInABucket(t *testing.T) {
	t.Parallel()
	one, other := initKeys(t), initKeys(t)
	url := lockBucket(t, one, roomy(t)...)
	elsewhere := strings.Replace(url, "/plane?", "/other?", 1)
	// Of the other plane a service is enough.
	for _, name := range auth.Everybody() {
		if name != topology.Generator {
			command(t, "auth", "revoke", "--out", other, name)
		}
	}
	if out, err := authStore(t, other, elsewhere); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for dir, at := range map[string]string{one: url, other: elsewhere} {
		s := openAs(t, dir, at, topology.Generator)
		if err := s.Put(t.Context(), "runs/r/trajectories/x", nil); err != nil {
			t.Error(err)
		}
		c, err := s3.ParseURL(map[string]string{url: elsewhere, elsewhere: url}[at])
		if err != nil {
			t.Fatal(err)
		}
		env := storeEnv(t, dir, topology.Generator)
		c.AccessKey, c.SecretKey = strings.TrimPrefix(env[0], "AWS_ACCESS_KEY_ID="),
			strings.TrimPrefix(env[1], "AWS_SECRET_ACCESS_KEY=")
		if _, err := s3.Open(t.Context(), c); err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the generator of one plane opens the other one's store: %v", err)
		}
	}
}

// TestPolicyOfOthers: statements of others stay in the bucket's policy, and one that opens what
// Rondo's keep shut is told.
func TestPolicyOfOthers(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	url := lockBucket(t, dir, roomy(t)...)
	c, err := s3.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	root, err := minio.New(strings.TrimPrefix(c.Endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(storagetest.AccessKey, storagetest.SecretKey, ""),
			Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	for action, opens := range map[string]bool{"s3:GetObject": false, "s3:PutObject": true} {
		const others = `{"Sid":"Theirs","Effect":"Allow","Principal":"*","Action":"%s","Resource":"arn:aws:s3:::rondo/plane/*"}`
		theirs := fmt.Sprintf(others, action)
		if err := root.SetBucketPolicy(t.Context(), c.Bucket,
			`{"Version":"2012-10-17","Statement":[`+theirs+`]}`); err != nil {
			t.Fatal(err)
		}
		out, err := authStore(t, dir, url)
		if opens != (err != nil) || opens && !strings.Contains(out, "writes where it may not") {
			t.Errorf("others allow %s: %v: %s", action, err, out)
		}
		policy, err := root.GetBucketPolicy(t.Context(), c.Bucket)
		if err != nil || !strings.Contains(policy, theirs) || strings.Count(policy, "rondo-probe") != 1 {
			t.Errorf("%v: %s", err, policy)
		}
	}
}

// TestServersWithoutUsers says what is not enforced, and makes no keys that open nothing.
func TestServersWithoutUsers(t *testing.T) {
	t.Parallel()
	memory := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(memory.Close)
	dir := initKeys(t)
	for what, url := range map[string]string{
		"versitygw without users": "s3://rondo?endpoint=" + storagetest.S3Dev(t),
		"another server":          "s3://rondo?create=true&endpoint=" + memory.URL,
	} {
		out, err := authStore(t, dir, url)
		if err == nil || !strings.Contains(out, "nothing is enforced") || !strings.Contains(out, "--iam-dir") {
			t.Errorf("%s: %v: %s", what, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "users", "generator", "s3.env")); err == nil {
			t.Errorf("%s: keys were made that open nothing", what)
		}
	}
	if out, err := authStore(t, dir, t.TempDir()); err == nil || !strings.Contains(out, "not an S3 bucket") {
		t.Errorf("a directory: %v: %s", err, out)
	}
	out, err := authStore(t, dir, "s3://rondo", "--print")
	var policy struct{ Statement []struct{ Sid string } }
	if err != nil || json.Unmarshal([]byte(out), &policy) != nil || len(policy.Statement) < 8 {
		t.Errorf("%v: %s", err, out)
	}
}
