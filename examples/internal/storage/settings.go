package storage

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// settings are the variables of a step.
type settings struct {
	bucketName, region, prefix string
	endpoint                   *url.URL
	pathStyle                  bool
	accessKey, secretKey       string
	role, externalID           string

	key      string
	paths    []string // of the cache; restore then writes nothing else
	format   string
	override bool
	mustFind bool
	policy   string
	mounts   map[string]string
	home     string

	source, target string

	repository string
	env        func(string) string
}

// settingError is an error of the pipeline or of the settings of the service.
type settingError struct{ text string }

func (e *settingError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &settingError{fmt.Sprintf(format, args...)} }

// The formats of archives.
const (
	formatZstd = "zstd"
	formatTar  = "tar"
	formatGzip = "gzip"
)

func readSettings(env func(string) string) (*settings, error) {
	get := func(name string) string { return strings.TrimSpace(env("PLUGIN_" + name)) }
	var err error
	flag := func(name string) bool {
		b, e := strconv.ParseBool(strings.ToLower(get(name)))
		if get(name) != "" && e != nil {
			err = wrong("PLUGIN_%s must be true or false", name)
		}
		return b
	}
	s := &settings{
		bucketName: get("BUCKET"), region: get("REGION"), prefix: strings.Trim(get("PREFIX"), "/"), pathStyle: flag("PATH_STYLE"),
		accessKey: get("ACCESS_KEY"), secretKey: get("SECRET_KEY"), role: get("ASSUME_ROLE"), externalID: get("EXTERNAL_ID"),
		key: get("CACHE_KEY"), format: strings.ToLower(get("ARCHIVE_FORMAT")), override: flag("OVERRIDE"),
		mustFind: flag("FAIL_RESTORE_IF_KEY_NOT_PRESENT"), policy: strings.ToLower(get("POLICY")), source: get("SOURCE"), target: get("TARGET"),
		home: env("HOME"), repository: env("DRONE_REPO_NAME"), env: env,
	}
	if err != nil {
		return nil, err
	}
	if s.bucketName == "" {
		return nil, wrong("bucket is required")
	}
	if s.endpoint, err = parseEndpoint(get("ENDPOINT"), &s.region); err != nil {
		return nil, err
	}
	switch s.format {
	case "":
		s.format = formatZstd
	case formatZstd, formatTar, formatGzip:
	default:
		return nil, wrong("archiveFormat is %q: use Tar, Gzip or Zstd", s.format)
	}
	switch s.policy {
	case "", "pull", "push", "pull-push":
	default:
		return nil, wrong("policy is %q: use pull, push or pull-push", s.policy)
	}
	if text := get("PATHS"); text != "" {
		if err := json.Unmarshal([]byte(text), &s.paths); err != nil {
			return nil, wrong("paths must be a list of texts")
		}
	}
	if text := env("DLITE_MOUNTS"); text != "" {
		if err := json.Unmarshal([]byte(text), &s.mounts); err != nil {
			return nil, fmt.Errorf("DLITE_MOUNTS: %w", err)
		}
	}
	return s, nil
}

// parseEndpoint returns the URL of the service: Amazon S3, or the one that text names. If the settings
// have no region, it sets one: the signature needs a region, and such a service accepts any.
func parseEndpoint(text string, region *string) (*url.URL, error) {
	if text == "" {
		if *region == "" {
			return nil, wrong("region is required without an endpoint")
		}
		text = "https://s3." + *region + ".amazonaws.com"
	}
	if *region == "" {
		*region = "us-east-1"
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return nil, wrong("endpoint must be a URL with a host and no path, such as https://s3.example")
	}
	return u, nil
}
