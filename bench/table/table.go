// Package table puts what `rondo-bench` measures beside what it is measured against, in one table.
package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	// Program is rondo-bench, whose other benchmarks are run.
	Program string
	// Only are the names of measurements; none are all.
	Only []string
	// Quick measures with small loads.
	Quick bool
	// Rivals is the script that measures the rivals; "" leaves them out.
	Rivals string
}

// Result is the table, of one machine.
type Result struct {
	On   string `json:"on"`
	Go   string `json:"go"`
	CPUs int    `json:"cpus"`
	// Load of the machine before the first measurement and behind the last one.
	Load    [2]float64 `json:"load"`
	Seconds float64    `json:"seconds"`
	Quick   bool       `json:"quick"`
	Rows    []Row      `json:"rows"`
	// Missing says, by the names of measurements, why there is nothing.
	Missing map[string]string `json:"missing,omitempty"`
}

// Row is one thing that Rondo does, beside the same without it.
type Row struct {
	Measurement string `json:"measurement"`
	What        string `json:"what"`
	Unit        string `json:"unit"`
	// Rondo and Other are in the unit; Beside is what Other is of.
	Rondo  float64 `json:"rondo"`
	Beside string  `json:"beside"`
	Other  float64 `json:"other"`
	// Ratio is how many times as fast Rondo is: the median over turns where the benchmark has one.
	Ratio float64 `json:"ratio"`
}

// Names lists the measurements, in the order of the table.
func Names() []string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	return append(names, rivals)
}

// rivals is the name of the measurement that a script makes.
const rivals = "rivals"

// Run measures one thing after the other. Missing says what could not be measured. An error means that no measurement was possible.
func Run(ctx context.Context, o Options, show func(string)) (Result, error) {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return Result{}, fmt.Errorf("there is no measurement %q: want %s", name, strings.Join(Names(), ", "))
		}
	}
	began := time.Now()
	r := Result{On: began.UTC().Format(time.DateOnly), Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Quick: o.Quick, Missing: map[string]string{}}
	r.Load[0] = load()
	take := func(name string, command []string, rows func([]byte) ([]Row, error)) error {
		if len(o.Only) > 0 && !slices.Contains(o.Only, name) {
			return nil
		}
		show(name)
		answer, err := lastLine(ctx, command)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var made []Row
		if err == nil {
			made, err = rows(answer)
		}
		if err != nil {
			r.Missing[name] = err.Error()
		}
		for _, row := range made {
			row.Measurement = name
			r.Rows = append(r.Rows, row)
		}
		return nil
	}
	for _, m := range measurements {
		args := m.args
		if o.Quick {
			args = m.quick
		}
		if err := take(m.name, append([]string{o.Program, m.name, "--json", "--quiet"}, args...), m.rows); err != nil {
			return r, err
		}
	}
	switch {
	case o.Rivals != "":
		command := []string{"python3", o.Rivals, "--json"}
		if o.Quick {
			command = append(command, "--try")
		}
		if err := take(rivals, command, rivalRows(r.Missing)); err != nil {
			return r, err
		}
	case len(o.Only) == 0 || slices.Contains(o.Only, rivals):
		r.Missing[rivals] = "bench/rivals/run is not there: run this in a checkout of Rondo, or name it with --rivals"
	}
	r.Load[1], r.Seconds = load(), time.Since(began).Seconds()
	return r, nil
}

// lastLine runs a command, whose progress goes to standard error, and gives the last line that it prints.
func lastLine(ctx context.Context, command []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		return nil, errors.New("it printed nothing")
	}
	return lines[len(lines)-1], nil
}

// load is the machine's load of the last minute, 0 where the system does not tell.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	value, _ := strconv.ParseFloat(first, 64)
	return value
}
