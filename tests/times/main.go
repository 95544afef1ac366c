// Command times runs tests as `go test` does, measures them, and prints what each package took and
// which guarantees it guards:
//
//	times test FILE FLAG... PACKAGE...   tests packages, prints what go test prints, and adds each package's and test's time to FILE
//	times confirm FILE FLAG... PACKAGE...   does the same, and tests packages that failed once more: it fails if one fails again
//	times table FILE                     prints the packages of FILE and its ten slowest tests
//	times guarded FILE                   fails if no test of FILE guards a guarantee of docs/guarantees.md
//	times failed FILE                    prints which tests of FILE failed, how often and why, and fails if any did
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) < 2 {
		return 0, errors.New("use: times test or confirm FILE FLAG PACKAGE, or times table, guarded or failed FILE")
	}
	switch verb, file := args[0], args[1]; verb {
	case "test":
		code, _, err := test(file, args[2:])
		return code, err
	case "confirm":
		return confirm(file, args[2:])
	case "exec": // what go test starts a test program by
		return measured(file, args[2:])
	case "table", "guarded", "failed":
		m, err := read(file)
		if err != nil {
			return 0, err
		}
		if verb == "failed" {
			return m.failed(os.Stdout), nil
		}
		promises, err := guarantees("docs/guarantees.md")
		if err != nil {
			return 0, err
		}
		if verb == "guarded" {
			return 0, m.guarded(promises)
		}
		m.table(os.Stdout, promises)
		return 0, nil
	default:
		return 0, fmt.Errorf("there is no verb %q: use test, confirm, table, guarded or failed", verb)
	}
}

// module is what the import path of each package begins with.
const module = "github.com/rondo-rl/rondo/"

// entry is a line of the file: what a test took, or a package (Test is ""), or the processes of a
// package's test program (CPU alone).
type entry struct {
	Folder  string  `json:"folder"` // of the package, in the repository
	Test    string  `json:"test,omitempty"`
	Outcome string  `json:"outcome,omitempty"` // pass, fail or skip
	Text    string  `json:"text,omitempty"`    // of a failure
	Seconds float64 `json:"seconds,omitempty"`
	CPU     float64 `json:"cpu,omitempty"` // seconds of the processors
}

// test runs go test in the repository's root, and each test program by this one. It returns the
// exit status and the packages that failed.
func test(file string, args []string) (code int, failures []failure, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return 0, nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return 0, nil, err
	}
	c := exec.Command("go", append([]string{"test", "-json", "-exec",
		strings.Join([]string{self, "exec", file, root}, " ")}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := c.Start(); err != nil {
		return 0, nil, err
	}
	if failures, err = follow(os.Stdout, out, file); err != nil {
		return 0, nil, errors.Join(err, c.Process.Kill())
	}
	code, err = status(c.Wait())
	return code, failures, err
}

// confirm tests packages. Those that fail it tests once more, one after the other. A test that
// passes the second time is flaky: the verb failed names it.
func confirm(file string, args []string) (code int, err error) {
	code, failures, err := test(file, args)
	if err != nil || code == 0 {
		return code, err
	}
	again, why := retried(args, failures)
	if why != "" {
		fmt.Println("nothing is tested again:", why)
		return code, nil
	}
	fmt.Printf("\nSome packages failed (%d). Each is tested once more, by itself.\n", len(failures))
	code, _, err = test(file, again)
	return code, err
}

// flakyPackages bounds how many packages of a run may fail by chance. Where more
// do, something is broken.
const flakyPackages = 3

// retried are the arguments of go test for the packages that failed, or why a
// second run would show nothing.
func retried(args []string, failures []failure) (again []string, why string) {
	if len(failures) == 0 {
		return nil, "no package's tests failed"
	}
	if len(failures) > flakyPackages {
		return nil, fmt.Sprintf("%d packages failed, more than %d", len(failures), flakyPackages)
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, module) {
			again = append(again, arg)
		}
	}
	again = append(again, "-p=1")
	for _, f := range failures {
		if f.sure != "" {
			return nil, f.pkg + ": " + f.sure
		}
		again = append(again, f.pkg)
	}
	return again, ""
}

// status is the exit status of a command that was waited for.
func status(err error) (code int, failure error) {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Wait returns it as it is
		if code = exit.ExitCode(); code < 0 {
			code = 1 // ended by a signal
		}
		return code, nil
	}
	return 0, err
}

// measured runs a test program, and notes what it and the processes that it waited
// for took of the processors.
func measured(file string, args []string) (code int, err error) {
	root, program := args[0], args[1:]
	c := exec.Command(program[0], program[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return 0, err
	}
	if code, err = status(c.Wait()); err != nil {
		return 0, err
	}
	here, err := os.Getwd() // go test starts a test program in its package's folder
	if err != nil {
		return 0, err
	}
	folder, err := filepath.Rel(root, here)
	if err != nil {
		return 0, err
	}
	return code, add(file, entry{Folder: folder, CPU: (c.ProcessState.UserTime() +
		c.ProcessState.SystemTime()).Seconds()})
}

// add appends an entry to the file in one write, as several programs do so at once.
func add(file string, e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}
