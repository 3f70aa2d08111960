/* A stand-in for NVIDIA's libnvidia-ml.so.1: the part of NVML that the node agent uses, with its rules and error codes.
 *
 * In the directory named by MOCK_NVML are
 *   boards   what the machine has, read when there is no state yet:
 *              driver VERSION
 *              board UUID MIB RESERVED COMPUTE ARCHITECTURE CAPABILITY live|admin MODE NAME...
 *              profile ENUM ID SLICES UNITS MAX MIB SM MEDIA START,START... NAME   (of the board before it; NAME "-": an
 *                old driver that gives none); MEDIA: 0 -me, 1 plain, 2 +me, 3 +me.all
 *   control  what goes wrong now, read at every call:
 *              fail FUNCTION CODE UUID|*          die FUNCTION (after it has taken effect)
 *              lost UUID        unprivileged      exclusive (a board's mode is not switched while an event set of the
 *                same process watches it)
 *              process UUID GPU_INSTANCE PID MIB      client UUID PID MIB (of MPS)
 *   xids     events, one a line, only ever added to: UUID XID
 *   calls    the functions that were called, if the file exists: NAME UUID (of the board; - if it is of none)
 *   state    shared by all processes, under a lock for the length of a call; it outlives them. mock_reboot() clears
 *            instances, lets pending modes take effect and gives what is made from then on other UUIDs; mock_renumber()
 *            turns the order round in which boards are counted.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE, TIMEOUT = 10,
       GPU_IS_LOST = 15, RESET_REQUIRED, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { BOARDS = 16, PROFILES = 18, STARTS = 16, INSTANCES = 16, PARTS = 8, EVENT_XID = 8, COMPUTE_PROFILES = 9 };

typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { uint start, size; } Placement;
typedef struct { int known; uint id, slices, units, max, sm, media, starts; uint at[STARTS]; ull mib; char name[64]; } Profile;
typedef struct { int used; uint id, profile, start, slices; } Part;                  /* a compute instance */
typedef struct { int used; uint id, kind; Placement at; Part parts[PARTS]; } Instance; /* kind: index in profiles */
typedef struct { char uuid[80], name[96]; uint mib, reserved, compute, arch, major, minor, live, mig, current, pending, mode;
                 Profile profiles[PROFILES]; Instance instances[INSTANCES]; } Board;
typedef struct { uint boot, boards; char driver[80]; Board board[BOARDS]; } State;
typedef struct EventSet { long read; uint watched, waiting; struct EventSet *next; } EventSet;

/* Structs that only one function takes, as NVML lays them out; those with a version say their size in it. */
typedef struct { uint version; ull total, reserved, free, used; } MemoryV2;
typedef struct { uint id, p2p, slices, instances, sm, copy, decoders, encoders, jpeg, ofa; ull mib; } ProfileInfo;
typedef struct { uint version, id, p2p, slices, instances, sm, copy, decoders, encoders, jpeg, ofa; ull mib; char name[96]; } ProfileInfoV2;
typedef struct { void *device; uint id, profile; Placement at; } InstanceInfo;
typedef struct { uint id, slices, instances, sm, shared[5]; } PartProfileInfo;
typedef struct { uint version, id, slices, instances, sm, shared[5]; char name[96]; } PartProfileInfoV2;
typedef struct { void *device, *instance; uint id, profile; Placement at; } PartInfo;
typedef struct { void *device; ull type, data; uint instance, part; } Event;
#define VERSION_2(info) (sizeof *(info) | 2u << 24)

static State *state;
static int lock_fd = -1, initialized;
static EventSet *event_sets; /* of this process; those that were freed watch nothing */

/* Files ------------------------------------------------------------------------------------------------------------ */

static FILE *in_directory(const char *name, const char *how) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("MOCK_NVML") ? getenv("MOCK_NVML") : "/nonexistent", name);
  return fopen(path, how);
}

static void power_on(void) {
  FILE *file = in_directory("boards", "r");
  char line[1024], starts[256], how[16];
  for (Board *board = state->board - 1; file && fgets(line, sizeof line, file);) {
    uint kind;
    Profile p = {.known = 1};
    Board b = {0};
    if (sscanf(line, "driver %79s", state->driver) == 1) continue;
    if (sscanf(line, "board %79s %u %u %u %u %u.%u %15s %u %95[^\n]", b.uuid, &b.mib, &b.reserved, &b.compute, &b.arch,
               &b.major, &b.minor, how, &b.current, b.name) == 10) {
      b.live = !strcmp(how, "live"), b.mig = b.compute > 0, b.pending = b.current;
      *(board = &state->board[state->boards++]) = b;
    } else if (sscanf(line, "profile %u %u %u %u %u %llu %u %u %255s %63s", &kind, &p.id, &p.slices, &p.units, &p.max,
                      &p.mib, &p.sm, &p.media, starts, p.name) == 10) {
      for (char *at = strtok(starts, ","); at; at = strtok(NULL, ",")) p.at[p.starts++] = (uint)atoi(at);
      board->profiles[kind] = p;
    }
  }
  if (file) fclose(file);
}

static int map_state(void) {
  char path[4096];
  void *mapped;
  snprintf(path, sizeof path, "%s/state", getenv("MOCK_NVML") ? getenv("MOCK_NVML") : "/nonexistent");
  if (state) munmap(state, sizeof *state), close(lock_fd), state = NULL;
  if ((lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0) return UNKNOWN;
  flock(lock_fd, LOCK_EX);
  if (ftruncate(lock_fd, sizeof(State))) return UNKNOWN;
  mapped = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, lock_fd, 0);
  if (mapped == MAP_FAILED) return UNKNOWN;
  state = mapped;
  if (!state->boot) state->boot = 1, power_on();
  flock(lock_fd, LOCK_UN);
  return OK;
}

/* Return the code that the control file wants of this call on this board (NULL: of none); -1 to die after it. */
static int wanted(const char *function, const Board *board) {
  FILE *file = in_directory("calls", "r+"), *control = in_directory("control", "r");
  char line[256], name[128], uuid[80];
  int code, result = OK;
  if (file) fseek(file, 0, SEEK_END), fprintf(file, "%s %s\n", function, board ? board->uuid : "-"), fclose(file);
  while (control && fgets(line, sizeof line, control)) {
    if (sscanf(line, "fail %127s %d %79s", name, &code, uuid) == 3) {
      if (!strcmp(name, function) && (!strcmp(uuid, "*") || (board && !strcmp(uuid, board->uuid)))) result = code;
    } else if (sscanf(line, "lost %79s", uuid) == 1) {
      if (board && !strcmp(uuid, board->uuid)) result = GPU_IS_LOST;
    } else if (sscanf(line, "die %127s", name) == 1) {
      if (!strcmp(name, function)) result = -1;
    } else if (!strncmp(line, "unprivileged", 12)) {
      if (strstr(function, "GpuInstance") || strstr(function, "ComputeInstance") || strstr(function, "DeviceSet")) result = result ? result : NO_PERMISSION;
    }
  }
  if (control) fclose(control);
  return result;
}

/* Return how many processes hold a GPU instance (-1: anything on the board), and up to `room` of them. */
typedef struct { uint pid; ull memory; uint instance, part; } Process;
static uint processes(const Board *board, int instance, Process *found, uint room) {
  FILE *control = in_directory("control", "r");
  char line[256], uuid[80];
  uint count = 0, pid;
  int on;
  ull mib;
  while (control && fgets(line, sizeof line, control))
    if (sscanf(line, "process %79s %d %u %llu", uuid, &on, &pid, &mib) == 4 && !strcmp(uuid, board->uuid) &&
        (instance < 0 || instance == on)) {
      if (count < room) found[count] = (Process){pid, mib << 20, (uint)on, on < 0 ? (uint)-1 : 0};
      count++;
    }
  if (control) fclose(control);
  return count;
}

/* Return whether the mode of a board is kept from being switched by an event set that watches it. */
static int held_by_events(const Board *board) {
  FILE *control = in_directory("control", "r");
  char line[256];
  int exclusive = 0, watched = 0;
  while (control && fgets(line, sizeof line, control)) exclusive |= !strncmp(line, "exclusive", 9);
  if (control) fclose(control);
  for (EventSet *set = event_sets; set; set = set->next) watched |= set->watched >> (board - state->board) & 1;
  return exclusive && watched;
}

/* Every function runs its body under the lock, after what the control file wants of it. */
#define CALL(function, board, ...)                                 \
  do {                                                             \
    if (!initialized) return UNINITIALIZED;                        \
    int code_ = wanted(function, board), result_ = OK;             \
    if (code_ > 0) return code_;                                   \
    flock(lock_fd, LOCK_EX);                                       \
    __VA_ARGS__;                                                   \
    flock(lock_fd, LOCK_UN);                                       \
    if (code_ < 0) _exit(137);                                     \
    return result_;                                                \
  } while (0)

/* Handles ---------------------------------------------------------------------------------------------------------- */

static int within(const void *p) { return (char *)p >= (char *)state->board && (char *)p < (char *)(state + 1); }

/* Return the board in which a handle of any kind lies. */
static Board *board_of(const void *handle) {
  return within(handle) ? &state->board[((char *)handle - (char *)state->board) / sizeof(Board)] : NULL;
}

static int is_board(const void *handle) { return within(handle) && board_of(handle) == handle; }

static Instance *instance_of(const void *handle) {
  Board *board = board_of(handle);
  long offset = board ? (char *)handle - (char *)board->instances : -1;
  Instance *instance = offset < 0 ? NULL : &board->instances[offset / (long)sizeof(Instance)];
  return instance && instance->used ? instance : NULL;
}

static Part *part_of(const void *handle) {
  Instance *instance = instance_of(handle);
  Part *part = instance && handle != (void *)instance ? (Part *)handle : NULL;
  return part && part->used ? part : NULL;
}

/* Rules of MIG ----------------------------------------------------------------------------------------------------- */

static Profile *by_id(Board *board, uint id) {
  for (Profile *p = board->profiles; p < board->profiles + PROFILES; p++)
    if (p->known && p->id == id) return p;
  return NULL;
}

static int has_start(const Profile *p, uint start) {
  for (uint i = 0; i < p->starts; i++)
    if (p->at[i] == start) return 1;
  return 0;
}

static int fits(Board *board, const Profile *p, uint start) {
  uint compute = p->slices, alike = 1, extended = p->media > 1, all = p->media == 3, others = p->media && p->media < 3;
  for (Instance *i = board->instances; i < board->instances + INSTANCES; i++) {
    if (!i->used) continue;
    Profile *q = &board->profiles[i->kind];
    if (start < i->at.start + i->at.size && i->at.start < start + p->units) return 0;
    compute += q->slices, alike += q == p, extended += q->media > 1, all += q->media == 3;
    others += q->media && q->media < 3;
  }
  return compute <= board->compute && alike <= p->max && extended <= 1 && !(all && others);
}

static Instance *place(Board *board, Profile *p, uint start) {
  uint id = p->slices == board->compute ? 0 : 1;
  for (Instance *i = board->instances; i < board->instances + INSTANCES; i++)
    if (i->used && i->id == id) id++, i = board->instances - 1;
  for (Instance *i = board->instances; i < board->instances + INSTANCES; i++)
    if (!i->used) {
      *i = (Instance){1, id, (uint)(p - board->profiles), {start, p->units}, {{0}}};
      return i;
    }
  return NULL;
}

static int create(Board *board, uint id, const Placement *at, void **made) {
  Profile *p = board ? by_id(board, id) : NULL;
  if (!board || !board->current) return board ? NOT_SUPPORTED : INVALID_ARGUMENT;
  if (!p || (at && (!has_start(p, at->start) || at->size != p->units))) return INVALID_ARGUMENT;
  for (uint i = 0; i < p->starts; i++)
    if ((!at || p->at[i] == at->start) && fits(board, p, p->at[i]) && (*made = place(board, p, p->at[i]))) return OK;
  return INSUFFICIENT_RESOURCES;
}

/* Compute profiles by their enum, which here is their id too. REV1 is 1_SLICE with all processors of an instance of double
 * memory. 7_SLICE_NVL has the slices of 7_SLICE and cannot be made; here it has a processor more, to be tempting. */
static const uint SLICES[COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 8, 6, 1, 7};

static int compute_profile(const Board *board, const Instance *instance, uint kind, uint *sm) {
  const Profile *p = &board->profiles[instance->kind], *one = &board->profiles[0];
  if (kind >= COMPUTE_PROFILES || SLICES[kind] > p->slices) return 0;
  int doubled = p->slices == 1 && one->known && p->units > one->units;
  if (kind == 7 && !doubled) return 0;
  *sm = kind == 0 && doubled ? one->sm : p->sm * SLICES[kind] / p->slices + (kind == 8);
  return 1;
}

static void *mig_device(Board *board, uint index) {
  for (Instance *i = board->instances; i < board->instances + INSTANCES; i++)
    for (Part *part = i->parts; i->used && part < i->parts + PARTS; part++)
      if (part->used && !index--) return part;
  return NULL;
}

/* The library ------------------------------------------------------------------------------------------------------ */

int nvmlInitWithFlags(uint flags) {
  int code = wanted("nvmlInitWithFlags", NULL);
  (void)flags;
  if (code > 0) return code;
  if (!initialized && (code = map_state())) return code;
  return initialized++, OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  if (!initialized) return UNINITIALIZED;
  if (!--initialized)
    for (EventSet *set = event_sets; set; set = set->next) set->watched = 0;
  return wanted("nvmlShutdown", NULL);
}
const char *nvmlErrorString(int code) {
  return code == IN_USE ? "In use by another client" : code == INSUFFICIENT_RESOURCES ? "Insufficient Resources" : "Error";
}

int nvmlSystemGetDriverVersion(char *version, uint length) {
  CALL("nvmlSystemGetDriverVersion", NULL, snprintf(version, length, "%s", state->driver));
}

int nvmlDeviceGetCount_v2(uint *count) { CALL("nvmlDeviceGetCount_v2", NULL, *count = state->boards); }

int nvmlDeviceGetHandleByIndex_v2(uint index, void **device) {
  if (initialized && index >= state->boards) return INVALID_ARGUMENT;
  CALL("nvmlDeviceGetHandleByIndex_v2", initialized ? &state->board[index] : NULL, *device = &state->board[index]);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  CALL("nvmlDeviceGetHandleByUUID", NULL, {
    result_ = NOT_FOUND;
    for (uint i = 0; i < state->boards; i++)
      if (!strcmp(uuid, state->board[i].uuid)) *device = &state->board[i], result_ = OK;
  });
}

int nvmlDeviceGetName(void *device, char *name, uint length) {
  CALL("nvmlDeviceGetName", board_of(device), snprintf(name, length, "%s", board_of(device)->name));
}

int nvmlDeviceGetUUID(void *device, char *uuid, uint length) {
  CALL("nvmlDeviceGetUUID", board_of(device), {
    Board *board = board_of(device);
    Part *part = is_board(device) ? NULL : part_of(device);
    if (is_board(device))
      snprintf(uuid, length, "%s", board->uuid);
    else if (part) /* other numbers after a reboot, as a driver may give */
      snprintf(uuid, length, "MIG-%08x-%04x-5%03x-8%03x-%.12s", (uint)(board - state->board) + 1, state->boot,
               instance_of(device)->id, part->id, board->uuid + strlen(board->uuid) - 12);
    else
      result_ = INVALID_ARGUMENT;
  });
}

int nvmlDeviceGetMemoryInfo(void *device, ull *memory) {
  CALL("nvmlDeviceGetMemoryInfo", board_of(device), {
    Board *board = board_of(device);
    memory[0] = (ull)board->mib << 20, memory[2] = (ull)board->reserved << 20, memory[1] = memory[0] - memory[2];
  });
}

int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *memory) {
  CALL("nvmlDeviceGetMemoryInfo_v2", board_of(device), {
    Board *board = board_of(device);
    if (memory->version != VERSION_2(memory)) {
      result_ = VERSION_MISMATCH;
    } else {
      memory->total = (ull)board->mib << 20, memory->reserved = (ull)board->reserved << 20;
      memory->used = 0, memory->free = memory->total - memory->reserved;
    }
  });
}

int nvmlDeviceGetArchitecture(void *device, uint *architecture) {
  CALL("nvmlDeviceGetArchitecture", board_of(device), *architecture = board_of(device)->arch);
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  CALL("nvmlDeviceGetCudaComputeCapability", board_of(device), {
    *major = (int)board_of(device)->major, *minor = (int)board_of(device)->minor;
  });
}

int nvmlDeviceGetComputeMode(void *device, uint *mode) {
  CALL("nvmlDeviceGetComputeMode", board_of(device), *mode = board_of(device)->mode);
}

int nvmlDeviceSetComputeMode(void *device, uint mode) {
  CALL("nvmlDeviceSetComputeMode", board_of(device), {
    if (board_of(device)->current) result_ = NOT_SUPPORTED;
    else board_of(device)->mode = mode;
  });
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint *count, Process *found) {
  CALL("nvmlDeviceGetComputeRunningProcesses_v3", board_of(device), {
    uint room = found ? *count : 0;
    *count = processes(board_of(device), -1, found, room);
    if (*count > room) result_ = INSUFFICIENT_SIZE;
  });
}

#ifndef OLD_DRIVER
static uint clients(const Board *board, Process *found, uint room) {
  FILE *control = in_directory("control", "r");
  char line[256], uuid[80];
  uint count = 0, pid;
  ull mib;
  while (control && fgets(line, sizeof line, control))
    if (sscanf(line, "client %79s %u %llu", uuid, &pid, &mib) == 3 && !strcmp(uuid, board->uuid)) {
      if (count < room) found[count] = (Process){pid, mib << 20, (uint)-1, (uint)-1};
      count++;
    }
  if (control) fclose(control);
  return count;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, uint *count, Process *found) {
  CALL("nvmlDeviceGetMPSComputeRunningProcesses_v3", board_of(device), {
    uint room = found ? *count : 0;
    *count = clients(board_of(device), found, room);
    if (*count > room) result_ = INSUFFICIENT_SIZE;
  });
}
#endif

/* MIG mode and GPU instances --------------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(void *device, uint *current, uint *pending) {
  CALL("nvmlDeviceGetMigMode", board_of(device), {
    if (!board_of(device)->mig) result_ = NOT_SUPPORTED;
    *current = board_of(device)->current, *pending = board_of(device)->pending;
  });
}

int nvmlDeviceSetMigMode(void *device, uint mode, int *activation) {
  CALL("nvmlDeviceSetMigMode", board_of(device), {
    Board *board = board_of(device);
    if (!board->mig) {
      result_ = NOT_SUPPORTED;
    } else {
      int busy = processes(board, -1, NULL, 0) > 0 || held_by_events(board);
      for (uint i = 0; i < INSTANCES; i++) busy |= board->instances[i].used;
      board->pending = mode;
      *activation = mode == board->current ? OK : busy ? IN_USE : board->live ? OK : RESET_REQUIRED;
      if (*activation == OK) board->current = mode;
      if (board->current) board->mode = 0;  // NVML: the compute mode of a board in MIG mode is the default one
    }
  });
}

static int profile_info(Board *board, uint kind, ProfileInfo *info) {
  if (!board || !board->mig) return board ? NOT_SUPPORTED : INVALID_ARGUMENT;
  if (kind >= PROFILES) return INVALID_ARGUMENT;
  Profile *p = &board->profiles[kind];
  if (!p->known) return NOT_SUPPORTED;
  *info = (ProfileInfo){p->id, 0, p->slices, p->max, p->sm, 1, p->media, 0, p->media > 1, p->media > 1, p->mib};
  return OK;
}

int nvmlDeviceGetGpuInstanceProfileInfo(void *device, uint kind, ProfileInfo *info) {
  CALL("nvmlDeviceGetGpuInstanceProfileInfo", board_of(device), result_ = profile_info(board_of(device), kind, info));
}

#ifndef OLD_DRIVER /* that is: before the functions with versioned structs */
int nvmlDeviceGetGpuInstanceProfileInfoV(void *device, uint kind, ProfileInfoV2 *info) {
  CALL("nvmlDeviceGetGpuInstanceProfileInfoV", board_of(device), {
    if (info->version != VERSION_2(info)) {
      result_ = VERSION_MISMATCH;
    } else if (!(result_ = profile_info(board_of(device), kind, (ProfileInfo *)&(ProfileInfo){0}))) {
      Profile *p = &board_of(device)->profiles[kind];
      info->id = p->id, info->slices = p->slices, info->instances = p->max, info->sm = p->sm, info->mib = p->mib;
      snprintf(info->name, sizeof info->name, "%s%s", *p->name == '-' ? "" : "MIG ", *p->name == '-' ? "" : p->name);
    }
  });
}
#endif

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, uint id, Placement *placements, uint *count) {
  CALL("nvmlDeviceGetGpuInstancePossiblePlacements_v2", board_of(device), {
    Profile *p = by_id(board_of(device), id);
    if (!p) result_ = INVALID_ARGUMENT;
    for (uint i = 0; p && placements && i < p->starts; i++) placements[i] = (Placement){p->at[i], p->units};
    if (p) *count = p->starts;
  });
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(void *device, uint id, uint *count) {
  CALL("nvmlDeviceGetGpuInstanceRemainingCapacity", board_of(device), {
    Board *scratch = malloc(sizeof(Board));
    void *made;
    *scratch = *board_of(device), *count = 0;
    while (!(result_ = create(scratch, id, NULL, &made))) ++*count;
    if (result_ == INSUFFICIENT_RESOURCES) result_ = OK;
    free(scratch);
  });
}

int nvmlDeviceCreateGpuInstance(void *device, uint id, void **made) {
  CALL("nvmlDeviceCreateGpuInstance", board_of(device), result_ = create(board_of(device), id, NULL, made));
}

int nvmlDeviceCreateGpuInstanceWithPlacement(void *device, uint id, const Placement *at, void **made) {
  CALL("nvmlDeviceCreateGpuInstanceWithPlacement", board_of(device), result_ = create(board_of(device), id, at, made));
}

int nvmlGpuInstanceDestroy(void *handle) {
  CALL("nvmlGpuInstanceDestroy", board_of(handle), {
    Instance *instance = instance_of(handle);
    if (!instance) {
      result_ = INVALID_ARGUMENT;
    } else {
      for (uint i = 0; i < PARTS; i++)
        if (instance->parts[i].used) result_ = IN_USE;
      if (processes(board_of(handle), (int)instance->id, NULL, 0)) result_ = IN_USE;
      if (!result_) instance->used = 0;
    }
  });
}

/* A buffer must be there and large enough for all that the profile allows: nobody is told how much, so that NULL is wrong. */
int nvmlDeviceGetGpuInstances(void *device, uint id, void **found, uint *count) {
  CALL("nvmlDeviceGetGpuInstances", board_of(device), {
    Board *board = board_of(device);
    Profile *p = by_id(board, id);
    if (!board->current) {
      result_ = NOT_SUPPORTED;
    } else if (!p || !found) {
      result_ = INVALID_ARGUMENT;
    } else {
      *count = 0;
      for (Instance *i = board->instances; i < board->instances + INSTANCES; i++)
        if (i->used && &board->profiles[i->kind] == p) found[(*count)++] = i;
    }
  });
}

int nvmlDeviceGetGpuInstanceById(void *device, uint id, void **found) {
  CALL("nvmlDeviceGetGpuInstanceById", board_of(device), {
    result_ = NOT_FOUND;
    for (Instance *i = board_of(device)->instances; i < board_of(device)->instances + INSTANCES; i++)
      if (i->used && i->id == id) *found = i, result_ = OK;
  });
}

int nvmlGpuInstanceGetInfo(void *handle, InstanceInfo *info) {
  CALL("nvmlGpuInstanceGetInfo", board_of(handle), {
    Instance *i = instance_of(handle);
    Board *board = board_of(handle);
    if (!i) result_ = INVALID_ARGUMENT;
    else info->device = board, info->id = i->id, info->profile = board->profiles[i->kind].id, info->at = i->at;
  });
}

/* Compute instances ------------------------------------------------------------------------------------------------ */

int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *handle, uint kind, uint engine, PartProfileInfo *info) {
  CALL("nvmlGpuInstanceGetComputeInstanceProfileInfo", board_of(handle), {
    Instance *i = instance_of(handle);
    uint sm;
    if (!i || engine || kind >= COMPUTE_PROFILES) result_ = INVALID_ARGUMENT;
    else if (!compute_profile(board_of(handle), i, kind, &sm)) result_ = NOT_SUPPORTED;
    else info->id = kind, info->slices = SLICES[kind], info->sm = sm,
         info->instances = board_of(handle)->profiles[i->kind].slices / SLICES[kind];
  });
}

#ifndef OLD_DRIVER
int nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *handle, uint kind, uint engine,
                                                  PartProfileInfoV2 *info) {
  CALL("nvmlGpuInstanceGetComputeInstanceProfileInfoV", board_of(handle), {
    Instance *i = instance_of(handle);
    uint sm;
    if (info->version != VERSION_2(info)) result_ = VERSION_MISMATCH;
    else if (!i || engine || kind >= COMPUTE_PROFILES) result_ = INVALID_ARGUMENT;
    else if (!compute_profile(board_of(handle), i, kind, &sm)) result_ = NOT_SUPPORTED;
    else info->id = kind, info->slices = SLICES[kind], info->sm = sm,
         info->instances = board_of(handle)->profiles[i->kind].slices / SLICES[kind];
  });
}
#endif

int nvmlGpuInstanceCreateComputeInstance(void *handle, uint kind, void **made) {
  CALL("nvmlGpuInstanceCreateComputeInstance", board_of(handle), {
    Instance *i = instance_of(handle);
    uint sm, taken = 0, id = 0;
    Part *room = NULL;
    if (!i || kind >= COMPUTE_PROFILES) {
      result_ = INVALID_ARGUMENT;
    } else if (kind == 8 || !compute_profile(board_of(handle), i, kind, &sm)) {
      result_ = NOT_SUPPORTED;
    } else {
      for (Part *part = i->parts; part < i->parts + PARTS; part++) {
        if (part->used) taken += part->slices, id = part->id + 1;
        else if (!room) room = part;
      }
      if (!room || taken + SLICES[kind] > board_of(handle)->profiles[i->kind].slices) result_ = INSUFFICIENT_RESOURCES;
      else *room = (Part){1, id, kind, taken, SLICES[kind]}, *made = room;
    }
  });
}

int nvmlComputeInstanceDestroy(void *handle) {
  CALL("nvmlComputeInstanceDestroy", board_of(handle), {
    if (!part_of(handle)) result_ = INVALID_ARGUMENT;
    else if (processes(board_of(handle), (int)instance_of(handle)->id, NULL, 0)) result_ = IN_USE;
    else part_of(handle)->used = 0;
  });
}

/* Profiles with the same number of slices answer with each other's instances. */
int nvmlGpuInstanceGetComputeInstances(void *handle, uint kind, void **found, uint *count) {
  CALL("nvmlGpuInstanceGetComputeInstances", board_of(handle), {
    Instance *i = instance_of(handle);
    if (!i || !found || kind >= COMPUTE_PROFILES) {
      result_ = INVALID_ARGUMENT;
    } else {
      *count = 0;
      for (Part *part = i->parts; part < i->parts + PARTS; part++)
        if (part->used && part->slices == SLICES[kind]) found[(*count)++] = part;
    }
  });
}

int nvmlComputeInstanceGetInfo_v2(void *handle, PartInfo *info) {
  CALL("nvmlComputeInstanceGetInfo_v2", board_of(handle), {
    Part *part = part_of(handle);
    if (!part) result_ = INVALID_ARGUMENT;
    else info->device = part, info->instance = instance_of(handle), info->id = part->id, info->profile = part->profile,
         info->at = (Placement){part->start, part->slices};
  });
}

/* MIG devices ------------------------------------------------------------------------------------------------------ */

int nvmlDeviceGetMaxMigDeviceCount(void *device, uint *count) {
  CALL("nvmlDeviceGetMaxMigDeviceCount", board_of(device), *count = board_of(device)->compute);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, uint index, void **found) {
  CALL("nvmlDeviceGetMigDeviceHandleByIndex", board_of(device), {
    if (!(*found = mig_device(board_of(device), index))) result_ = NOT_FOUND;
  });
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **board) {
  CALL("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", board_of(device), *board = board_of(device));
}

int nvmlDeviceGetGpuInstanceId(void *device, uint *id) {
  CALL("nvmlDeviceGetGpuInstanceId", board_of(device), {
    if (is_board(device) || !part_of(device)) result_ = INVALID_ARGUMENT;
    else *id = instance_of(device)->id;
  });
}

int nvmlDeviceGetComputeInstanceId(void *device, uint *id) {
  CALL("nvmlDeviceGetComputeInstanceId", board_of(device), {
    if (is_board(device) || !part_of(device)) result_ = INVALID_ARGUMENT;
    else *id = part_of(device)->id;
  });
}

/* Events ----------------------------------------------------------------------------------------------------------- */

int nvmlEventSetCreate(EventSet **set) {
  CALL("nvmlEventSetCreate", NULL, {
    FILE *file = in_directory("xids", "r");
    *set = calloc(1, sizeof **set);
    do (*set)->next = event_sets;
    while (!__sync_bool_compare_and_swap(&event_sets, (*set)->next, *set));
    if (file) fseek(file, 0, SEEK_END), (*set)->read = ftell(file), fclose(file);
  });
}

int nvmlEventSetFree(EventSet *set) {
  CALL("nvmlEventSetFree", NULL, {
    if (set->waiting) result_ = IN_USE;
    else set->watched = 0;
  });
}

int nvmlDeviceRegisterEvents(void *device, ull types, EventSet *set) {
  CALL("nvmlDeviceRegisterEvents", board_of(device), {
    if (types & ~(ull)EVENT_XID) result_ = NOT_SUPPORTED;
    else set->watched |= 1u << (board_of(device) - state->board);
  });
}

static int wait_for(EventSet *set, Event *event, uint timeout_ms) {
  for (uint waited = 0;; usleep(10000), waited += 10) {
    FILE *file = in_directory("xids", "r");
    char line[256], uuid[80];
    ull xid;
    if (file) fseek(file, set->read, SEEK_SET);
    while (file && fgets(line, sizeof line, file)) {
      set->read = ftell(file);
      if (sscanf(line, "%79s %llu", uuid, &xid) != 2) continue;
      for (uint i = 0; i < state->boards; i++)
        if (!strcmp(uuid, state->board[i].uuid) && set->watched >> i & 1) {
          event->device = &state->board[i], event->type = EVENT_XID, event->data = xid;
          event->instance = event->part = (uint)-1;
          return fclose(file), OK;
        }
    }
    if (file) fclose(file);
    if (waited >= timeout_ms) return TIMEOUT;
  }
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, uint timeout_ms) {
  if (!initialized) return UNINITIALIZED;
  int code = wanted("nvmlEventSetWait_v2", NULL);
  if (code > 0) return code;
  set->waiting = 1, code = wait_for(set, event, timeout_ms), set->waiting = 0;
  return code;
}

/* Not of NVML ------------------------------------------------------------------------------------------------------ */

void mock_reboot(void) {
  flock(lock_fd, LOCK_EX);
  state->boot++;
  for (Board *board = state->board; board < state->board + state->boards; board++) {
    board->current = board->pending;
    if (board->current) board->mode = 0;
    memset(board->instances, 0, sizeof board->instances);
  }
  flock(lock_fd, LOCK_UN);
}

void mock_renumber(void) {
  flock(lock_fd, LOCK_EX);
  for (Board *low = state->board, *high = low + state->boards - 1; low < high; low++, high--) {
    Board board = *low;
    *low = *high, *high = board;
  }
  flock(lock_fd, LOCK_UN);
}
