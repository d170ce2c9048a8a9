package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// ReadSettings reads settings from YAML, for example:
//
//	connectors:
//	  github: {kind: git, url: https://github.com/acme, username: bot, password_secret: github_token}
//	infrastructure:
//	  Cloud: {driver: local, selectors: [fast]}
//	secrets:
//	  github_token: vault://kv/ci#github
//
// Members that it does not know are errors.
func ReadSettings(text []byte) (Settings, error) {
	var s Settings
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("reading the settings of pipelines: %w", err)
	}
	return s, nil
}
