package s3

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// Config says where the bucket is and who asks.
type Config struct {
	Endpoint string // http://host:port or https://host; empty: Amazon S3
	Region   string // empty: us-east-1
	Bucket   string
	Prefix   string // of all keys, without slashes at its ends; may be empty

	AccessKey, SecretKey string
	SessionToken         string // for temporary credentials

	// CreateBucket makes the bucket if it is not there.
	CreateBucket bool

	// KeysInFiles: files hold the credentials (AWS_ACCESS_KEY_ID_FILE and its like), and are read
	// again while the store is open.
	KeysInFiles bool
}

const defaultRegion = "us-east-1"

// ParseURL reads s3://bucket/prefix?endpoint=http://host:port&region=eu-west-1&create=true. The
// credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN, or from the files that variables of these names with _FILE behind name, which
// are read again while the store is open, so that keys may be rotated; the region too (AWS_REGION),
// unless the URL names it.
func ParseURL(text string) (Config, error) {
	// The text may hold credentials in the wrong place, so no error here repeats it.
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" {
		return Config{}, errors.New("not a URL of the form s3://bucket/prefix?endpoint=http://host:port&region=name")
	}
	if u.User != nil {
		return Config{},
			errors.New("an S3 URL with credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, errors.New("an S3 URL with a malformed query")
	}
	c := Config{Endpoint: query.Get("endpoint"), Region: query.Get("region"), Bucket: u.Host,
		Prefix: strings.Trim(u.Path, "/")}
	if c.AccessKey, c.SecretKey, c.SessionToken, err = environmentKeys(); err != nil {
		return Config{}, err
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID_FILE", "AWS_SECRET_ACCESS_KEY_FILE", "AWS_SESSION_TOKEN_FILE"} {
		c.KeysInFiles = c.KeysInFiles || os.Getenv(name) != ""
	}
	c.Region = cmp.Or(c.Region, os.Getenv("AWS_REGION"))
	if create := query.Get("create"); create != "" {
		if c.CreateBucket, err = strconv.ParseBool(create); err != nil {
			return Config{}, fmt.Errorf("create=%q in the S3 URL: want true or false", create)
		}
	}
	for name := range query {
		if name != "endpoint" && name != "region" && name != "create" {
			return Config{}, fmt.Errorf("unknown parameter %q in the S3 URL (known: endpoint, region, create)", name)
		}
	}
	return c, nil
}

// environmentKeys reads the credentials that the environment holds or names files of.
func environmentKeys() (access, secretKey, session string, err error) {
	for name, value := range map[string]*string{"AWS_ACCESS_KEY_ID": &access, "AWS_SECRET_ACCESS_KEY": &secretKey,
		"AWS_SESSION_TOKEN": &session} {
		if *value, err = secret(name); err != nil {
			return "", "", "", err
		}
	}
	return access, secretKey, session, nil
}

// secret reads a variable of the environment, or the file that the variable with _FILE behind its
// name names, as container engines hand secrets over.
func secret(name string) (string, error) {
	file := os.Getenv(name + "_FILE")
	if value := os.Getenv(name); value != "" || file == "" {
		return value, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// host checks the configuration and gives the endpoint's host and whether to speak TLS.
func (c *Config) host() (host string, secure bool, err error) {
	switch {
	case len(c.Bucket) < 3:
		return "", false, fmt.Errorf("bucket %q: a name has at least 3 characters", c.Bucket)
	case c.AccessKey == "" || c.SecretKey == "":
		return "", false, errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if c.Prefix != "" {
		if err := storage.ValidateKey(c.Prefix); err != nil {
			return "", false, fmt.Errorf("prefix: %w", err)
		}
	}
	if c.Endpoint == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" ||
		u.User != nil || u.RawQuery != "" {
		return "", false, errors.New("the endpoint is not of the form http://host:port or https://host")
	}
	return u.Host, u.Scheme == "https", nil
}
