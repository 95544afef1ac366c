// Package auth has the commands that make, list and revoke credentials.
package auth

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events/topology"
)

// authFlags are what all commands of auth share.
type authFlags struct{ out string }

// New makes the command `rondo auth`.
func New(g *app.Global) *cobra.Command {
	f := &authFlags{}
	cmd := &cobra.Command{
		Use: "auth", Short: "Create keys and credentials with the least permissions for each service and each external user",
		Long: `Auth keeps a directory of keys for a NATS server: an operator, an account for the plane with a user for each service, and an account for
outsiders. What a user may do follows from the topology (` + "`rondo events topology`" + `): a service states its own types, fetches from its own
consumers and reads the log; an outsider submits events of one run to the intake and reads that run. The server enforces this.

For an S3 bucket, store makes keys for the same users. The directory is an operator's: users/NAME/ goes to who is called NAME, nats/auth.conf
to the server, keys/ to nobody.`,
	}
	cmd.PersistentFlags().StringVar(&f.out, "out", "auth", "directory of the keys")
	cmd.AddCommand(newAuthInit(g, f), newAuthUser(g, f), newAuthStore(g, f), newAuthList(g, f), newAuthShow(g, f),
		newAuthRotate(g, f), newAuthRevoke(g, f))
	return cmd
}

// madeUser is what `rondo auth init` tells of a user.
type madeUser struct {
	Name    string       `json:"name"`
	Outcome auth.Outcome `json:"outcome"`
	Creds   string       `json:"creds"`
}

func newAuthInit(g *app.Global, f *authFlags) *cobra.Command {
	var hosts []string
	var storeRoot bool
	cmd := &cobra.Command{
		Use: "init", Short: "Make the keys, the server's configuration and a user for each service; what exists is kept", Args: cobra.NoArgs,
		Long: `Init makes what is missing and keeps the rest, so it may run before every start. Users whose permissions have changed with a new version of
Rondo get them under the same key.

The server includes nats/auth.conf (and nats/tls.conf with --tls) in its configuration, in place of users and passwords. Servers of a cluster include
nats/routes.conf in its block, too: they know each other by the certificate, which has to name all of them.`,
		Example: `  rondo auth init --out /etc/rondo/auth
  rondo auth init --out /etc/rondo/auth --tls nats --tls log.example.org --tls 10.0.0.4
  rondo service generator --nats nats://nats:4222 --nats-creds /etc/rondo/auth/users/generator/nats.creds --store /srv/rondo`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := auth.Init(f.out)
			if err != nil {
				return fmt.Errorf("make keys in %s: %w", f.out, err)
			}
			if len(hosts) > 0 {
				if err := auth.EnsureTLS(f.out, hosts, time.Now()); err != nil {
					return fmt.Errorf("make a certificate: %w", err)
				}
			}
			if storeRoot {
				if err := a.EnsureRootKeys(); err != nil {
					return fmt.Errorf("make root keys: %w", err)
				}
			}
			results := []madeUser{}
			for _, name := range auth.Everybody() {
				outcome, err := a.Ensure(auth.User{Name: name, Services: []string{name}})
				if err != nil {
					return fmt.Errorf("make user %s: %w", name, err)
				}
				results = append(results, madeUser{name, outcome, a.Creds(name)})
			}
			return app.Show(cmd, g, results, func(w io.Writer) error {
				return tellMade(w, f.out,
					results, len(hosts) > 0)
			})
		},
	}
	cmd.Flags().StringArrayVar(&hosts, "tls", nil,
		"name or address of the NATS server, or of each of a cluster, for a certificate authority and a certificate of its own; may be repeated")
	cmd.Flags().BoolVar(&storeRoot, "store-root", false,
		"make root keys for an S3 server, too: s3/root.access and s3/root.secret")
	return cmd
}

func tellMade(w io.Writer, out string, results []madeUser, tls bool) error {
	counts := map[auth.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	fmt.Fprintf(w, "%d users in %s: %d made, %d updated, %d kept\n", len(results), out, counts[auth.OutcomeMade],
		counts[auth.OutcomeUpdated], counts[auth.OutcomeKept])
	fmt.Fprintf(w, "for the server:    include %q in its configuration\n", filepath.Join(out, auth.ConfigFile))
	if tls {
		fmt.Fprintf(w, "                   include %q\n", filepath.Join(out, auth.TLSConfigFile))
		fmt.Fprintf(w, "for its clients:   --nats-ca %s\n", filepath.Join(out, auth.CAFile))
	}
	_, err := fmt.Fprintf(w, "for the services:  --nats-creds %s\n", filepath.Join(out, "users", "NAME", "nats.creds"))
	return err
}

func newAuthUser(g *app.Global, f *authFlags) *cobra.Command {
	var o topology.Outsider
	var services []string
	var role, domain string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "user NAME",
		Short: "Make credentials for a trainer, harness, product or operator of one run, or for a process of several services",
		Args:  cobra.ExactArgs(1),
		Long: "Roles:\n" + roleTable() + `
The server knows a new user with a role at once. After a new user with services it needs a reload (nats-server --signal reload, or a HUP signal).`,
		Example: `  rondo auth user torch --role trainer --run mine --feed trainer --policy repair --expires 720h
  rondo auth user swe-agent --role harness --run mine
  rondo auth user everything --service intake --service querysampler --service advantagecalculator --service trainerfeeder
  rondo auth user far --service generator --service toolrunner --service scorer --domain home`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := auth.Open(f.out)
			if err != nil {
				return err
			}
			u := auth.User{Name: args[0], Services: services, Domain: domain}
			if slices.Contains(auth.Everybody(), u.Name) {
				return fmt.Errorf("%s is the name of a service: choose another one", u.Name)
			}
			if len(services) == 0 {
				o.Name, o.Role = u.Name, topology.Role(role)
				u.Outsider = &o
			}
			if lasts > 0 {
				u.Expires = time.Now().UTC().Add(lasts).Truncate(time.Second)
			}
			outcome, err := a.Ensure(u)
			if err != nil {
				return fmt.Errorf("make user %s: %w", u.Name, err)
			}
			result := madeUser{u.Name, outcome, a.Creds(u.Name)}
			return app.Tell(cmd, g, result, "%s: %s\n", result.Outcome, result.Creds)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&role, "role", string(topology.RoleTrainer), "role of the external user in the run")
	fl.StringVar(&o.Run, "run", "", "the outsider's run")
	fl.StringVar(&o.Feed, "feed", "", "the trainer's feed")
	fl.StringVar(&o.Policy, "policy", "", "the policy whose weights the outsider submits or serves")
	fl.StringArrayVar(&services, "service", nil,
		"a service that the user's process runs, in place of a role; may be repeated")
	fl.StringVar(&domain, "domain", "",
		"JetStream domain of the log, for services that connect to servers without JetStream, in another region")
	fl.DurationVar(&lasts, "expires", 0, "how long the credentials are good for (0: until they are revoked)")
	cmd.MarkFlagsMutuallyExclusive("service", "run")
	cmd.MarkFlagsMutuallyExclusive("domain", "run")
	cmd.MarkFlagsOneRequired("service", "run")
	return cmd
}

func roleTable() string {
	var b strings.Builder
	w := app.NewColumns(&b)
	for _, r := range topology.Roles {
		fmt.Fprintf(w, "  %s\t%s\n", r.Role, r.Purpose)
	}
	w.Flush()
	return b.String()
}

func newAuthList(g *app.Global, f *authFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the users", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := auth.Open(f.out)
			if err != nil {
				return err
			}
			users, err := a.Users()
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), users)
			}
			w := app.NewColumns(cmd.OutOrStdout())
			fmt.Fprintln(w, "NAME\tIS\tSTATE\tKEY")
			for _, u := range users {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.Name, whatItIs(u), validity(u, time.Now()), u.Key)
			}
			return w.Flush()
		},
	}
}

func whatItIs(u auth.User) string {
	if u.Outsider == nil {
		return strings.Join(u.Services, " ")
	}
	return fmt.Sprintf("%s of run %s", u.Outsider.Role, u.Outsider.Run)
}

func validity(u auth.User, now time.Time) string {
	switch {
	case !u.Revoked.IsZero():
		return "revoked " + u.Revoked.Format(time.DateOnly)
	case !u.Expires.IsZero() && now.After(u.Expires):
		return "expired " + u.Expires.Format(time.DateOnly)
	case !u.Expires.IsZero():
		return "until " + u.Expires.Format(time.DateOnly)
	}
	return "good"
}

func newAuthShow(g *app.Global, f *authFlags) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show what a user, or a service of the topology, may do on the server",
		Args:    cobra.ExactArgs(1),
		Example: "  rondo auth show generator\n  rondo auth show torch --out /etc/rondo/auth --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			u := auth.User{Name: args[0], Services: []string{args[0]}}
			if !slices.Contains(auth.Everybody(), u.Name) {
				a, err := auth.Open(f.out)
				if err != nil {
					return err
				}
				if u, err = a.User(args[0]); err != nil {
					return err
				}
			}
			p, err := u.Permissions()
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), p)
			}
			w := app.NewColumns(cmd.OutOrStdout())
			for _, list := range []struct {
				what     string
				subjects []string
			}{{"publish", p.Publish}, {"never publish", p.DenyPublish}, {"subscribe", p.Subscribe}} {
				for _, s := range list.subjects {
					fmt.Fprintf(w, "%s\t%s\n", list.what, s)
				}
			}
			return w.Flush()
		},
	}
}

func newAuthRotate(g *app.Global, f *authFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rotate NAME...", Short: "Give users new keys and revoke the old ones", Args: cobra.MinimumNArgs(1),
		Long: "The old keys stop working after the server is reloaded (nats-server --signal reload, or a HUP signal).",
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.each(cmd, g, names, "rotated", (*auth.Authority).Rotate)
		},
	}
}

func newAuthRevoke(g *app.Global, f *authFlags) *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME...", Short: "Revoke the credentials of users", Args: cobra.MinimumNArgs(1),
		Long: "The server refuses these users, also the connected ones, after a reload (nats-server --signal reload, or a HUP signal).",
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.each(cmd, g, names, "revoked", (*auth.Authority).Revoke)
		},
	}
}

// each does something to users, and says what is left to do.
func (f *authFlags) each(cmd *cobra.Command, g *app.Global, names []string, done string,
	do func(*auth.Authority, string) error) error {
	a, err := auth.Open(f.out)
	if err != nil {
		return err
	}
	store := ""
	for _, name := range names {
		if err := do(a, name); err != nil {
			return err
		}
		if !a.HasStoreKeys(name) {
			continue
		}
		store = "; and run `rondo auth store`, until when the bucket knows their old keys"
		if err := a.DropStoreKeys(name); err != nil {
			return err
		}
	}
	return app.Tell(cmd, g, names, "%s: %s; now reload the server, which includes %s%s\n", done,
		strings.Join(names, " "), filepath.Join(f.out, auth.ConfigFile), store)
}
