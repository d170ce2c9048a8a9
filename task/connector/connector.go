package connector

// Connector is the description of an outside system. Handlers must not write it to a log:
// Secrets has values on the delegate.
type Connector struct {
	// ID is the name that the manager keeps the connector under.
	ID string `json:"id,omitempty"`
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	// Address is a URL, or for Git over SSH also user@host:path. Kinds of public services have a default.
	Address string `json:"address,omitempty"`
	// Secrets are credentials by their names, such as [SecretToken]. In the manager each is a
	// reference such as vault://kv/ci#token, in the data of a task ${{secrets.vault://kv/ci#token}},
	// and in a handler its value.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Options are settings that are not secret, by their names. docs/connectors.md lists them.
	Options map[string]string `json:"options,omitempty"`
}

// The kinds of connectors.
const (
	KindGit         = "git" // any server, over HTTPS or SSH
	KindGitHub      = "github"
	KindGitLab      = "gitlab"
	KindBitbucket   = "bitbucket"
	KindGitea       = "gitea"
	KindAzureRepos  = "azure-repos"
	KindRegistry    = "registry" // any OCI registry
	KindDockerHub   = "docker-hub"
	KindECR         = "ecr"
	KindGAR         = "gar" // Artifact Registry and gcr.io
	KindACR         = "acr"
	KindHarbor      = "harbor"
	KindArtifactory = "artifactory"
	KindAWS         = "aws"
	KindGCP         = "gcp"
	KindAzure       = "azure"
	KindKubernetes  = "kubernetes"
	KindVault       = "vault"
	KindS3          = "s3"
	KindHTTP        = "http"
)

// The names of secrets.
const (
	SecretToken     = "token"
	SecretUsername  = "username"
	SecretPassword  = "password"
	SecretAccessKey = "access_key"
	SecretSecretKey = "secret_key"
	// SecretKey is a private key for SSH in PEM, or a key file of a cloud in JSON.
	SecretKey = "key"

	secretSessionToken = "session_token"
	secretClientCert   = "client_cert"
	secretClientKey    = "client_key"
)

// The names of options.
const (
	optionCA         = "ca"
	optionUsername   = "username"
	optionRepository = "repository"
	optionAccess     = "access"
	optionKnownHosts = "known_hosts"
	optionRegion     = "region"
	optionBucket     = "bucket"
	optionPrefix     = "prefix"
	optionPathStyle  = "path_style"
	optionProject    = "project"
	optionTenant     = "tenant"
	optionClient     = "client_id"
	optionNamespace  = "namespace"
	optionPath       = "path"
	optionAssumeRole = "assume_role"
	optionExternalID = "external_id"
	optionResource   = "resource"
)
