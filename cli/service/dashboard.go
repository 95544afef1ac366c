package service

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/dashboard"
)

const (
	// dashboardToken is the environment variable with the token of those who may change runs on the dashboard.
	dashboardToken = "RONDO_DASHBOARD_TOKEN"
	// DashboardTokenFile holds, in the plane's directory, the token of a dashboard that was given none.
	DashboardTokenFile = "dashboard.token"
	// dashboardConnections bounds the connections of browsers; who comes when there are as many waits for one to end.
	dashboardConnections = 1024
)

// dashboardSettings are what the dashboard can be told.
type dashboardSettings struct {
	listen   string
	listener net.Listener // nil: it is made when the dashboard starts
}

// AddFlags adds the dashboard's flag.
func (s *dashboardSettings) AddFlags(f *pflag.FlagSet, listen string) {
	f.StringVar(&s.listen, "dashboard-listen", listen, "where the dashboard listens for browsers, for example 127.0.0.1:8780; \"\" starts none. Who reaches it reads all runs")
}

// Listen opens the dashboard's port before anything runs, and gives the address of its first page, "" where there is no dashboard.
func (s *dashboardSettings) Listen() (url string, err error) {
	if s.listen == "" {
		return "", nil
	}
	if s.listener, err = net.Listen("tcp", s.listen); err != nil {
		return "", fmt.Errorf("--dashboard-listen: %w", err)
	}
	return "http://" + s.listener.Addr().String() + "/", nil
}

// Close closes a port that no dashboard has taken.
func (s *dashboardSettings) Close() {
	if s.listener != nil {
		s.listener.Close()
	}
}

// serveDashboard serves browsers until the context ends.
func serveDashboard(ctx context.Context, env pipeline.Env, s Settings) error {
	if s.Dashboard.listener == nil {
		if _, err := s.Dashboard.Listen(); err != nil {
			return err
		}
	}
	if s.Dashboard.listener == nil {
		return fmt.Errorf("--dashboard-listen: name an address for the %s", topology.Dashboard)
	}
	defer s.Dashboard.Close()
	token, file := os.Getenv(dashboardToken), ""
	if token == "" {
		file = filepath.Join(env.Dir, DashboardTokenFile)
		var err error
		if token, err = plane.LastingToken(file); err != nil {
			return fmt.Errorf("the dashboard's token: %w", err)
		}
	}
	d, err := dashboard.New(ctx, env, token)
	if err != nil {
		return err
	}
	env.Logger.Info("dashboard listening", "url", "http://"+s.Dashboard.listener.Addr().String()+"/", "token_file", file)
	return s.ServeOpen(ctx, netutil.LimitListener(s.Dashboard.listener, dashboardConnections), d)
}
