// Command composeconfig prints Compose files, later ones over earlier ones, as
// `docker compose config --format json` would: read strictly, with its variables filled in and its
// defaults spelled out. It uses the loader of Docker Compose itself, and needs no Docker.
//
//	composeconfig -env-file .env.example -profile demo,gateway compose.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("composeconfig: ")
	envFile := flag.String("env-file", "", "file of variables")
	profiles := flag.String("profile", "", "profiles to include, by commas")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("name a Compose file")
	}
	if err := run(flag.Args(), *envFile, *profiles); err != nil {
		log.Fatal(err)
	}
}

func run(files []string, envFile, profiles string) error {
	var options []cli.ProjectOptionsFn
	if envFile != "" {
		options = append(options, cli.WithEnvFiles(envFile), cli.WithDotEnv)
	}
	if profiles != "" {
		options = append(options, cli.WithProfiles(strings.Split(profiles, ",")))
	}
	project, err := cli.NewProjectOptions(files, options...)
	if err != nil {
		return err
	}
	loaded, err := project.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := loaded.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, string(text))
	return err
}
