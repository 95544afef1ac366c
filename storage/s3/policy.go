package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// Grant is what a user of the server may do in a bucket. Keys are patterns below the
// configuration's prefix; * stands for any characters.
type Grant struct {
	User                      string // its access key
	Read, Write, Delete, List []string
}

// statement is one of a bucket policy.
type statement struct {
	Sid       string
	Effect    string
	Principal map[string]words
	Action    words
	Resource  words
	Condition map[string]map[string][]string `json:",omitempty"`
}

// words are written as a text where there is but one.
type words []string

// MarshalJSON implements json.Marshaler.
func (w words) MarshalJSON() ([]byte, error) {
	if len(w) == 1 {
		return json.Marshal(w[0])
	}
	return json.Marshal([]string(w))
}

const (
	arn     = "arn:aws:s3:::"
	version = "2012-10-17"
)

// sid begins the names of Rondo's statements for a prefix of the bucket: other statements of the
// bucket's policy are not Rondo's.
func (c Config) sid() string { return "R" + storage.Digest([]byte(c.Prefix))[:6] + "n" }

// ours says whether a statement is Rondo's, by its name.
func (c Config) ours(sid string) bool {
	return strings.HasPrefix(sid, c.sid())
}

// statements says grants in as few bytes as they go: servers that keep a policy in an extended
// attribute of a file have room for 4000.
func (c Config) statements(grants []Grant) []statement {
	base := ""
	if c.Prefix != "" {
		base = c.Prefix + "/"
	}
	actions := map[[2]string][]string{} // of a pattern and a user
	lists := map[string][]string{}      // users by pattern
	var collectors []string             // who sees everything looks for uploads that nobody finished
	for _, g := range grants {
		// Who writes may give up what it has begun to upload.
		for action, patterns := range map[string][]string{"s3:GetObject": g.Read, "s3:PutObject": g.Write,
			"s3:Abort*": g.Write, "s3:DeleteObject": g.Delete} {
			for _, p := range widest(patterns) {
				actions[[2]string{p, g.User}] = append(actions[[2]string{p, g.User}], action)
			}
		}
		for _, p := range g.List {
			lists[p] = append(lists[p], g.User)
			if p == "*" {
				collectors = append(collectors, g.User)
			}
		}
	}
	users := map[[2]string][]string{} // of a pattern and actions
	for at, list := range actions {
		slices.Sort(list)
		key := [2]string{at[0], strings.Join(list, " ")}
		users[key] = append(users[key], at[1])
	}
	resources := map[[2]string][]string{} // of actions and users
	for at, list := range users {
		slices.Sort(list)
		key := [2]string{at[1], strings.Join(list, " ")}
		resources[key] = append(resources[key], arn+c.Bucket+"/"+base+at[0])
	}
	var all []statement
	add := func(s statement) {
		s.Sid, s.Effect = fmt.Sprint(c.sid(), len(all)), "Allow"
		all = append(all, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(resources),
		func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		slices.Sort(resources[key])
		add(statement{Action: strings.Fields(key[0]), Principal: map[string]words{"AWS": strings.Fields(key[1])},
			Resource: resources[key]})
	}
	for _, p := range slices.Sorted(maps.Keys(lists)) {
		s := statement{Action: []string{"s3:ListBucket"}, Principal: map[string]words{"AWS": lists[p]},
			Resource: []string{arn + c.Bucket}}
		if base+p != "*" {
			s.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {base + p}}}
		}
		add(s)
	}
	if len(collectors) > 0 {
		add(statement{Action: []string{"s3:ListBucketMultipartUploads"}, Principal: map[string]words{"AWS": collectors},
			Resource: []string{arn + c.Bucket}})
	}
	return all
}

// widest are the patterns that no other one of them covers.
func widest(patterns []string) []string {
	return slices.DeleteFunc(slices.Clone(patterns), func(p string) bool {
		return slices.ContainsFunc(patterns, func(q string) bool {
			all := "^" + strings.ReplaceAll(regexp.QuoteMeta(q), `\*`, ".*") + "$"
			return q != p && regexp.MustCompile(all).MatchString(p)
		})
	})
}

// Policy is the bucket policy that gives users their rights, in JSON.
func (c Config) Policy(grants []Grant) ([]byte, error) { return c.policy(nil, grants) }

func (c Config) policy(others []json.RawMessage, grants []Grant) ([]byte, error) {
	for _, s := range c.statements(grants) {
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		others = append(others, text)
	}
	return json.Marshal(map[string]any{"Version": version, "Statement": others})
}

// setPolicy puts Rondo's statements into the bucket's policy in place of those that it put
// there before; others' stay.
func (a *Admin) setPolicy(ctx context.Context, grants []Grant) error {
	present, err := a.root.retrying.GetBucketPolicy(ctx, a.config.Bucket)
	if err != nil && response(err).StatusCode != http.StatusNotFound {
		return fmt.Errorf("read the bucket's policy: %w", kind(ctx, err))
	}
	var others []json.RawMessage
	if present != "" {
		if others, err = a.config.foreign(present); err != nil {
			return err
		}
	}
	text, err := a.config.policy(others, grants)
	if err != nil {
		return err
	}
	if err := a.root.retrying.SetBucketPolicy(ctx, a.config.Bucket, string(text)); err != nil {
		if unable(err) {
			return fmt.Errorf("%w (%s): it makes users, and cannot hold them to anything", ErrUnable,
				response(err).Code)
		}
		if response(err).StatusCode >= 500 && len(text) > attributeRoom {
			return fmt.Errorf("set the bucket's policy of %d bytes: %w; a server that keeps it in an extended attribute needs a file system with enough space for it "+
				"(ext4 has about %d bytes, XFS 64 KiB), or versitygw's --sidecar", len(text),
				kind(ctx, err), attributeRoom)
		}
		return fmt.Errorf("set the bucket's policy: %w", kind(ctx, err))
	}
	return nil
}

// attributeRoom is what ext4 has for extended attributes beside those of the
// server itself, in bytes.
const attributeRoom = 3800

// foreign are the statements of a policy that others have put there.
func (c Config) foreign(policy string) (others []json.RawMessage, err error) {
	var present struct{ Statement []json.RawMessage }
	if err := json.Unmarshal([]byte(policy), &present); err != nil {
		return nil, errors.New("the bucket has a policy whose statements are not a list; Rondo leaves it alone")
	}
	for _, text := range present.Statement {
		var s struct{ Sid string }
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, errors.New("the bucket has a policy with a malformed statement; Rondo leaves it alone")
		}
		if !c.ours(s.Sid) {
			others = append(others, text)
		}
	}
	return others, nil
}

// unable says that a server does not know a request.
func unable(err error) bool {
	status := response(err).StatusCode
	return status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}
