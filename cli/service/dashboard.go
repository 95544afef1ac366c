package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/dashboard"
)

const (
	// dashboardToken is the environment variable with the token of the dashboard.
	dashboardToken = "RONDO_DASHBOARD_TOKEN"
	// DashboardTokenFile holds, in the plane's directory, the token of a dashboard that was given
	// none.
	DashboardTokenFile = "dashboard.token"
	// dashboardConnections bounds the connections of browsers; who comes when there are as many
	// waits for one to end.
	dashboardConnections = 1024
)

// dashboardSettings are what the dashboard can be told.
type dashboardSettings struct {
	listen   string
	open     bool
	dir      string
	token    string
	listener net.Listener // nil: it is made when the dashboard starts
	note     io.Closer    // nil: another dashboard runs for the directory
}

// AddFlags adds the dashboard's flags.
func (s *dashboardSettings) AddFlags(f *pflag.FlagSet, listen string) {
	f.StringVar(&s.listen, "dashboard-listen", listen,
		"where the dashboard listens for browsers, for example 127.0.0.1:8780; \"\" starts none. "+
			"\"rondo dashboard\" prints the link with which they may read")
	f.BoolVar(&s.open, "dashboard-open", false,
		"let everybody who reaches the dashboard's address read all runs, also other users of this machine")
}

// Listen opens the dashboard's port before anything runs, and gives the address of its first page,
// "" where there is no dashboard.
func (s *dashboardSettings) Listen(dir string) (url string, err error) {
	if s.listen == "" {
		return "", nil
	}
	s.dir = dir
	if err := plane.PrivateDir(dir); err != nil {
		return "", err
	}
	if s.token, err = tokenOfDashboard(dir); err != nil {
		return "", err
	}
	if s.listener, err = net.Listen("tcp", s.listen); err != nil {
		return "", fmt.Errorf("--dashboard-listen: %w", err)
	}
	if s.note, err = plane.NoteDashboard(dir, s.url()); err != nil {
		return "", errors.Join(err, s.listener.Close())
	}
	return s.url(), nil
}

// tokenOfDashboard is the token that the environment or the directory has. In the directory it is
// made where there is none.
func tokenOfDashboard(dir string) (string, error) {
	if token := strings.TrimSpace(os.Getenv(dashboardToken)); token != "" {
		if len(token) < plane.ShortestToken {
			return "", fmt.Errorf("%s has %d characters: who reads the dashboard could guess it from the link. Set one of at least %d, as `openssl rand -hex 32` makes, or none",
				dashboardToken, len(token), plane.ShortestToken)
		}
		return token, nil
	}
	token, err := plane.LastingToken(filepath.Join(dir, DashboardTokenFile))
	if err != nil {
		return "", fmt.Errorf("the dashboard's token: %w", err)
	}
	return token, nil
}

// url is where a browser of this machine finds the dashboard.
func (s *dashboardSettings) url() string {
	at := s.listener.Addr().String()
	if tcp, ok := s.listener.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		at = fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return "http://" + at + "/"
}

// Welcome says where the dashboard is: with the link on a terminal, and in a pipe, which may end in
// a file that others read, with the command that prints it.
func (s *dashboardSettings) Welcome(terminal bool) string {
	switch {
	case s.open:
		return s.url() + " (--dashboard-open: everybody who reaches this address reads all runs)"
	case terminal:
		return linkTo(s.url(), s.token)
	}
	return fmt.Sprintf("%s (%s)", s.url(), s.linkHelp())
}

// linkHelp says how to get the link.
func (s *dashboardSettings) linkHelp() string {
	if s.note == nil {
		return fmt.Sprintf("`rondo dashboard --dir %s` prints the link of another dashboard that runs there: put this address in its place", s.dir)
	}
	return fmt.Sprintf("`rondo dashboard --dir %s` prints its link", s.dir)
}

func linkTo(url, token string) string {
	return strings.TrimSuffix(url, "/") + dashboard.LinkPath(token)
}

// DashboardLink is the link of the dashboard that runs for a directory.
func DashboardLink(dir string) (string, error) {
	url, err := plane.DashboardOf(dir)
	if err != nil {
		return "", err
	}
	token, err := tokenOfDashboard(dir)
	return linkTo(url, token), err
}

// Close closes a port that no dashboard has taken.
func (s *dashboardSettings) Close() {
	if s.listener != nil {
		if s.note != nil {
			s.note.Close()
		}
		s.listener.Close()
	}
}

// serveDashboard serves browsers until the context ends.
func serveDashboard(ctx context.Context, env pipeline.Env, s Settings) error {
	if s.Dashboard.listener == nil {
		if _, err := s.Dashboard.Listen(env.Dir); err != nil {
			return err
		}
	}
	if s.Dashboard.listener == nil {
		return fmt.Errorf("--dashboard-listen: name an address for the %s", topology.Dashboard)
	}
	defer s.Dashboard.Close()
	d, err := dashboard.New(ctx, env, dashboard.Access{Token: s.Dashboard.token, Open: s.Dashboard.open},
		policy.TokenText)
	if err != nil {
		return err
	}
	at := s.Dashboard.url()
	if s.Dashboard.open {
		env.Logger.Warn("dashboard open", "url", at, "reason",
			"--dashboard-open: everybody who reaches this address reads all runs, also other users of this machine")
	}
	env.Logger.Info("dashboard listening", "url", at, "link", s.Dashboard.linkHelp())
	return s.ServeOpen(ctx, netutil.LimitListener(s.Dashboard.listener, dashboardConnections), d)
}
