package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/s3"
)

// storeUser is what `rondo auth store` tells of a user.
type storeUser struct {
	Name    string                `json:"name"`
	Access  string                `json:"access_key"`
	Outcome auth.Outcome          `json:"outcome"`
	Env     string                `json:"env"`
	Rights  topology.ObjectRights `json:"rights"`
}

func newAuthStore(g *app.Global, f *authFlags) *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use: "store", Short: "Create S3 keys for each user, limited to the prefixes it needs", Args: cobra.NoArgs,
		Long: `Store creates a user in the S3 server for each user of the directory. It needs the server's root credentials in AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. It sets a bucket policy with these permissions by prefix:

` + placeTable() + `
Store keeps the other statements of the policy and the keys that exist, so it can run again. Run it again after ` + "`rondo auth user`, `rotate` and `revoke`" + `.
Expired users lose their permissions when store runs. At the end, store checks with each user's keys that the server enforces the policy.

The server must be versitygw with users (--iam-dir, or VGW_IAM_DIR), best without its cache of them (--iam-cache-disable), which in 1.8.0 may take
one for another. For others --print prints the policy; its principals are access keys, which
stand for the users that you make there.`,
		Example: `  rondo auth store --out /etc/rondo/auth --store 's3://rondo?endpoint=http://10.0.0.2:7070&create=true'
  rondo auth store --store 's3://rondo' --print
  (set -a; . /etc/rondo/auth/users/generator/s3.env; exec rondo service generator --store 's3://rondo?endpoint=http://10.0.0.2:7070')`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := bucketOf(g.Store)
			if err != nil {
				return err
			}
			a, err := auth.Open(f.out)
			if err != nil {
				return err
			}
			here, gone, err := a.StoreUsers(time.Now())
			if err != nil {
				return err
			}
			if printOnly {
				return printPolicy(cmd.OutOrStdout(), a, c, here)
			}
			results, removed, err := applyStore(cmd.Context(), a, c, here, gone)
			if err != nil {
				return err
			}
			return app.Show(cmd, g, map[string]any{"bucket": c.Bucket, "users": results, "removed": removed},
				func(w io.Writer) error {
					return tellStore(w, f.out, c.Bucket, results, removed)
				})
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the bucket policy, and do nothing")
	return cmd
}

// bucketOf reads where the bucket is; other stores have no users.
func bucketOf(store string) (s3.Config, error) {
	switch {
	case store == "":
		return s3.Config{}, errors.New("no store is named: give --store s3://bucket?endpoint=URL")
	case !strings.HasPrefix(store, "s3://"):
		return s3.Config{},
			errors.New("--store is not an S3 bucket: a directory has no users, and only file permissions protect it")
	}
	return s3.ParseURL(store)
}

// grant is what a user may do, for the server.
func grant(a *auth.Authority, u auth.User) (s3.Grant, error) {
	rights, err := u.Objects()
	if err != nil {
		return s3.Grant{}, fmt.Errorf("user %s: %w", u.Name, err)
	}
	access, err := a.StoreAccess(u.Name)
	return s3.Grant{User: access, Read: rights.Read, Write: rights.Write, Delete: rights.Delete, List: rights.List}, err
}

func printPolicy(w io.Writer, a *auth.Authority, c s3.Config, users []auth.User) error {
	var grants []s3.Grant
	for _, u := range users {
		g, err := grant(a, u)
		if err != nil {
			return err
		}
		grants = append(grants, g)
	}
	policy, err := c.Policy(grants)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", policy)
	}
	return err
}

func applyStore(ctx context.Context, a *auth.Authority, c s3.Config, here,
	gone []auth.User) (results []storeUser, removed []string, err error) {
	server, err := s3.OpenAdmin(ctx, c)
	if err != nil {
		return nil, nil, notEnforced(err)
	}
	defer server.Close()
	results, removed = []storeUser{}, []string{}
	var users []s3.User
	for _, u := range here {
		g, err := grant(a, u)
		if err != nil {
			return nil, nil, err
		}
		keys, made, err := a.StoreKeys(u.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("keys of %s: %w", u.Name, err)
		}
		users = append(users, s3.User{Secret: keys.Secret, Grant: g})
		result := storeUser{Name: u.Name, Access: keys.Access, Outcome: auth.OutcomeKept, Env: a.StoreEnv(u.Name)}
		if made {
			result.Outcome = auth.OutcomeMade
		}
		if result.Rights, err = u.Objects(); err != nil {
			return nil, nil, err
		}
		results = append(results, result)
	}
	var lost []string
	for _, u := range gone {
		access, err := a.StoreAccess(u.Name)
		if err := errors.Join(err, a.DropStoreKeys(u.Name)); err != nil {
			return nil, nil, err
		}
		lost, removed = append(lost, access), append(removed, u.Name)
	}
	return results, removed, notEnforced(server.Apply(ctx, users, lost))
}

// notEnforced says what it means that a server has no users.
func notEnforced(err error) error {
	if errors.Is(err, s3.ErrUnable) {
		return fmt.Errorf("%w; nothing is enforced in this bucket: anybody with its keys can read, change and delete all objects. "+
			"Start versitygw with --iam-dir (VGW_IAM_DIR), or make users by hand and give them the policy that --print prints", err)
	}
	return err
}

func tellStore(w io.Writer, out, bucket string, results []storeUser, removed []string) error {
	fresh := 0
	for _, r := range results {
		if r.Outcome == auth.OutcomeMade {
			fresh++
		}
	}
	fmt.Fprintf(w, "%d users of bucket %s, each tried out: %d with new keys\n", len(results), bucket, fresh)
	if len(removed) > 0 {
		fmt.Fprintf(w, "without rights:     %s\n", strings.Join(removed, " "))
	}
	_, err := fmt.Fprintf(w, "for their processes: the variables in %s\n",
		filepath.Join(out, "users", "NAME", "s3.env"))
	return err
}

// placeTable says who does what where in the store.
func placeTable() string {
	var b strings.Builder
	w := app.NewColumns(&b)
	fmt.Fprintln(w, "  PREFIX\tWRITE\tREAD\tDELETE, LIST")
	names := func(services []string, roles []topology.Role) string {
		all := []string{}
		for _, s := range services {
			all = append(all, strings.ReplaceAll(s, topology.Anybody, "anybody"))
		}
		for _, r := range roles {
			all = append(all, "any "+string(r))
		}
		return strings.Join(all, ", ")
	}
	for _, s := range topology.Objects {
		prefix := s.Prefix
		prefix = cmp.Or(prefix, "(everything)")
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", prefix, names(s.Writes, s.RoleWrites),
			names(s.Reads, s.RoleReads), names(s.Deletes, nil))
	}
	w.Flush()
	return b.String()
}
