package steps

// imageSettings are the settings that all steps share that build and push an image.
var imageSettings = []Setting{
	{Field: "tags", Variable: "TAGS", Format: "list", Required: true},
	{Field: "dockerfile", Variable: "DOCKERFILE"},
	{Field: "context", Variable: "CONTEXT"},
	{Field: "target", Variable: "TARGET"},
	{Field: "buildArgs", Variable: "BUILD_ARGS", Format: "pairs"},
	{Field: "labels", Variable: "CUSTOM_LABELS", Format: "pairs"},
	{Field: "optimize", Variable: "SNAPSHOT_MODE", Value: "redo", Pods: true},
	{Field: "cacheFrom", Variable: "CACHE_FROM", Format: "list"},
	{Field: "cacheTo", Variable: "CACHE_TO"},
	{Field: "remoteCacheRepo", Variable: "ENABLE_CACHE", Pods: true, Value: "true"},
	{Field: "remoteCacheRepo", Variable: "CACHE_REPO", Pods: true},
	{Field: "envDockerSecrets", Variable: "SECRETS_FROM_ENV", Format: "pairs"},
	{Field: "fileDockerSecrets", Variable: "SECRETS_FROM_FILE", Format: "pairs"},
	{Field: "caching", Variable: "DOCKER_LAYER_CACHING", Value: "true"},
}

func withImageSettings(settings ...Setting) []Setting {
	return append(settings, imageSettings...)
}

// s3Settings and its neighbours are the settings of caches and uploads.
var (
	s3Settings = []Setting{
		{Field: "bucket", Variable: "BUCKET", Required: true},
		{Field: "region", Variable: "REGION"},
		{Field: "endpoint", Variable: "ENDPOINT"},
		{Field: "pathStyle", Variable: "PATH_STYLE"},
	}
	gcsSettings = []Setting{{Field: "bucket", Variable: "BUCKET", Required: true}}

	restoreSettings = []Setting{
		{Field: "key", Variable: "CACHE_KEY", Required: true},
		{Field: "archiveFormat", Variable: "ARCHIVE_FORMAT", Format: "lower"},
		{Field: "failIfKeyNotFound", Variable: "FAIL_RESTORE_IF_KEY_NOT_PRESENT"},
	}
	saveSettings = []Setting{
		{Field: "key", Variable: "CACHE_KEY", Required: true},
		{Field: "archiveFormat", Variable: "ARCHIVE_FORMAT", Format: "lower"},
		{Field: "sourcePaths", Variable: "MOUNT", Format: "list", Required: true},
		{Field: "override", Variable: "OVERRIDE"},
	}
	bundledSaveSettings = []Setting{
		{Field: "key", Variable: "CACHE_KEY", Required: true},
		{Field: "archiveFormat", Variable: "ARCHIVE_FORMAT", Format: "lower"},
		{Field: "sourcePaths", Variable: "PATHS", Format: jsonListFormat, Required: true},
		{Field: "override", Variable: "OVERRIDE"},
	}
	uploadSettings = []Setting{
		{Field: "sourcePath", Variable: "SOURCE", Required: true},
		{Field: "target", Variable: "TARGET"},
	}
)

func join(lists ...[]Setting) []Setting {
	var all []Setting
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// cacheFixed are the constant variables of a cache step.
func cacheFixed(backend, action string) map[string]string {
	return map[string]string{"BACKEND": backend, action: "true", "EXIT_CODE": "true", "BACKEND_OPERATION_TIMEOUT": "{timeout}"}
}

// withKeys are the steps of Google Cloud Storage for connectors with HMAC keys: the bundled program speaks the protocol of
// S3, which that storage understands.
var withKeys = map[string]Plugin{
	"RestoreCacheGCS": {program: "restore", Connector: GCPConnector, Settings: join(gcsSettings, restoreSettings), Fixed: gcsFixed},
	"SaveCacheGCS":    {program: "save", Connector: GCPConnector, Settings: join(gcsSettings, bundledSaveSettings), Fixed: gcsFixed},
	"GCSUpload":       {program: "upload", Connector: GCPConnector, Settings: join(gcsSettings, uploadSettings), Fixed: gcsFixed},
}

var gcsFixed = map[string]string{"ENDPOINT": "https://storage.googleapis.com", "PATH_STYLE": "true"}

// builtinPlugins are the step types that are an image, or a program of the delegate, with settings.
var builtinPlugins = map[string]Plugin{
	"BuildAndPushDockerRegistry": {
		Image: "plugins/buildx", PodImage: "plugins/kaniko", Connector: RegistryConnector, Privileged: true,
		Settings: withImageSettings(Setting{Field: "repo", Variable: "REPO", Required: true}),
	},
	"BuildAndPushECR": {
		Image: "plugins/buildx-ecr", PodImage: "plugins/kaniko-ecr", Connector: AWSConnector, Privileged: true,
		Fixed: map[string]string{"REGISTRY": "{account}.dkr.ecr.{region}.amazonaws.com"},
		Settings: withImageSettings(
			Setting{Field: "account", Required: true},
			Setting{Field: "region", Variable: "REGION", Required: true},
			Setting{Field: "imageName", Variable: "REPO", Required: true}),
	},
	"BuildAndPushGCR": {
		Image: "plugins/buildx-gcr", PodImage: "plugins/kaniko-gcr", Connector: GCPConnector, Privileged: true,
		Fixed: map[string]string{"REGISTRY": "{host}/{projectID}"},
		Settings: withImageSettings(
			Setting{Field: "host", Required: true},
			Setting{Field: "projectID", Required: true},
			Setting{Field: "imageName", Variable: "REPO", Required: true}),
	},
	"BuildAndPushGAR": {
		Image: "plugins/buildx-gar", PodImage: "plugins/kaniko-gar", Connector: GCPConnector, Privileged: true,
		Fixed: map[string]string{"REGISTRY": "{host}/{projectID}"},
		Settings: withImageSettings(
			Setting{Field: "host", Required: true},
			Setting{Field: "projectID", Required: true},
			Setting{Field: "imageName", Variable: "REPO", Required: true}),
	},
	"BuildAndPushACR": {
		Image: "plugins/buildx-acr", PodImage: "plugins/kaniko-acr", Connector: RegistryConnector, Privileged: true,
		Settings: withImageSettings(Setting{Field: "repository", Variable: "REPO", Required: true}),
	},
	"RestoreCacheS3":    {program: "restore", Connector: AWSConnector, Settings: join(s3Settings, restoreSettings)},
	"SaveCacheS3":       {program: "save", Connector: AWSConnector, Settings: join(s3Settings, bundledSaveSettings)},
	"RestoreCacheGCS":   {Image: "plugins/cache", Connector: GCPConnector, Settings: join(gcsSettings, restoreSettings), Fixed: cacheFixed("gcs", "RESTORE")},
	"SaveCacheGCS":      {Image: "plugins/cache", Connector: GCPConnector, Settings: join(gcsSettings, saveSettings), Fixed: cacheFixed("gcs", "REBUILD")},
	"RestoreCache":      {program: "restore", inCache: true, Settings: restoreSettings},
	"SaveCache":         {program: "save", inCache: true, Settings: bundledSaveSettings},
	"S3Upload":          {program: "upload", Connector: AWSConnector, Settings: join(s3Settings, uploadSettings)},
	"GCSUpload":         {Image: "plugins/gcs", Connector: GCPConnector, Settings: join(gcsSettings, uploadSettings)},
	"ArtifactoryUpload": {Image: "plugins/artifactory", Connector: ArtifactoryConnector, Settings: uploadSettings, Fixed: map[string]string{"FLAT": "true"}},
}
